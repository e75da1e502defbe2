"""Trains the demo checkpoint: float first, then with fake quantisation. Can stop early and resume from --state."""

import argparse
import math
import multiprocessing
import time
from pathlib import Path

import torch
from checkpoint import save_checkpoint
from model import Model
from optimizer import Optimizer
from row_pool import BUCKETS, RowPool, generate
from weights import Weights

HERE = Path(__file__).resolve().parent


def learning_rate(peak, progress):
    """Short warm-up, flat, then a line to zero over the last 60 %."""
    return peak * (min(1.0, progress / 0.01) * min(1.0, (1.0 - progress) / 0.6) + 1e-3)


def weight_mode(quantise, draw):
    """After the float phase most steps see 4-bit weights; the rest keeps the other two profiles in place."""
    if not quantise:
        return "float"
    return "w4" if draw < 0.7 else "w8" if draw < 0.85 else "float"


def row_lengths(progress, short_draw, long_draw):
    """One short or middle micro-batch and one long one; the longest only once short lists are understood."""
    long = 2048 if long_draw < min(0.6, 8 * progress) else 1024 if long_draw < min(0.9, 16 * progress) else 512
    return (128 if short_draw < 0.6 else 512), long


class Progress:
    """Loss and token accuracy per row length and weight mode since the last printed line."""

    def __init__(self, first_step, tokens_per_step):
        self.sums, self.first_step, self.tokens_per_step, self.begun = {}, first_step, tokens_per_step, time.time()

    def add(self, key, loss, hits, answers):
        entry = torch.stack([loss.detach(), torch.ones_like(hits), hits, answers])
        self.sums[key] = self.sums[key] + entry if key in self.sums else entry

    def report(self, step):
        parts, worst = [], 0.0
        for (length, mode), values in sorted(self.sums.items()):
            loss, count, hits, answers = values.tolist()
            parts.append(f"{length}/{mode} {loss / count:.4f} {100 * hits / answers:.2f}%")
            worst = max(worst, loss) if math.isfinite(loss) else math.inf
        seconds = time.time() - self.begun
        speed = (step - self.first_step) * self.tokens_per_step / seconds / 1e6
        print(f"{step} {seconds:.0f} s {speed:.1f}M tokens/s | " + " | ".join(parts), flush=True)
        self.sums = {}
        if not math.isfinite(worst):
            raise SystemExit("loss is not finite")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, default=HERE.parent / "tokenizer.json")
    parser.add_argument("--state", type=Path, required=True, help="file to resume from and to write")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop early and leave a state to resume from")
    parser.add_argument("--steps", type=int, default=23500, help="steps of the whole schedule, over all calls")
    parser.add_argument("--quantise-from", type=float, default=0.6, help="progress at which fake quantisation begins")
    parser.add_argument("--workers", type=int, default=15, help="processes that make rows")
    parser.add_argument(
        "--tokens", type=int, default=65536, help="tokens per micro-batch, a multiple of 2048; two make a step"
    )
    parser.add_argument("--pool", type=float, default=1.0, help="scale of the row pool")
    parser.add_argument("--lr", type=float, default=0.015)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true")
    return parser.parse_args()


def main():
    args = arguments()
    deadline = time.time() + args.minutes * 60
    saved = torch.load(args.state, map_location="cpu") if args.state.exists() else None
    first = saved["step"] if saved else 0
    # Workers fork before CUDA starts. The step in their seed keeps a resumed run from repeating its rows.
    context = multiprocessing.get_context("fork")
    queue = context.Queue(maxsize=4 * args.workers)
    for i in range(args.workers):
        context.Process(
            target=generate, args=(queue, args.tokenizer, f"train/{args.seed}/{first}/{i}"), daemon=True
        ).start()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    compile = not args.no_compile
    model, weights, pool = Model(device, compile), Weights(device, compile), RowPool(queue, args.pool, device)
    optimizer = Optimizer(weights.master)
    if saved:
        weights.load(saved["master"])
        optimizer.load(saved["optimizer"], device)
    pool.wait()

    progress_log = Progress(first, 2 * args.tokens)
    for step in range(first, args.steps):
        if time.time() > deadline:
            break
        progress = step / args.steps
        quantise = progress >= args.quantise_from
        mode_draw, short_draw, long_draw = torch.rand(3).tolist()
        mode = weight_mode(quantise, mode_draw)
        weights.prepare(mode)
        for length in row_lengths(progress, short_draw, long_draw):
            ids, targets, weight = pool.batch(length, args.tokens)
            loss, hits = model.loss(weights.work, weights.head, ids, targets, weight, quantise)
            (loss / 2).backward()
            progress_log.add((length, mode), loss, hits, weight.sum())
        optimizer.step(weights.master, weights.gradients(), learning_rate(args.lr, progress))
        pool.refresh()
        if (step + 1) % 500 == 0:
            progress_log.report(step + 1)
    else:
        step = args.steps
    torch.save({"master": weights.master, "optimizer": optimizer.state(), "step": step}, args.state)
    save_checkpoint(weights.master, args.tokenizer.parent, args.out)
    print(f"step {step} of {args.steps}; lengths {list(BUCKETS)}; rows made {pool.made}")


if __name__ == "__main__":
    main()
