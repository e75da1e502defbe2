"""Training rows made by worker processes while the device trains."""

import time

import torch
from rows import ANSWER_BIT, RowMaker

# Row length: rows kept on the device, and the generators' share of chunks. All micro-batches have the same token count.
BUCKETS = {128: (120000, 0.25), 512: (40000, 0.35), 1024: (12000, 0.15), 2048: (8000, 0.25)}


def generate(queue, tokenizer, seed):
    """Worker: endless rows, a chunk at a time."""
    torch.set_num_threads(1)
    maker = RowMaker(tokenizer, seed)
    lengths, shares = list(BUCKETS), [share for _, share in BUCKETS.values()]
    while True:
        length = maker.rng.choices(lengths, shares)[0]
        queue.put((length, maker.rows(max(4, 131072 // length), length)))


class RowPool:
    """Rows on the device, replaced in a ring by fresh ones as the workers deliver them."""

    def __init__(self, queue, scale, device):
        self.queue, self.device = queue, device
        self.rows = {
            n: torch.zeros(int(size * scale) + 1, n + 1, dtype=torch.int16, device=device)
            for n, (size, _) in BUCKETS.items()
        }
        self.made = dict.fromkeys(BUCKETS, 0)

    def refresh(self, limit=8):
        for _ in range(limit):
            if self.queue.empty():
                return
            length, rows = self.queue.get()
            pool = self.rows[length]
            at = (self.made[length] + torch.arange(len(rows))) % len(pool)
            pool[at.to(self.device)] = torch.from_numpy(rows).to(self.device)
            self.made[length] += len(rows)

    def wait(self, rows=64):
        """Returns once there are at least `rows` of every length."""
        while min(self.made.values()) < rows:
            self.refresh()
            time.sleep(0.01)

    def batch(self, length, tokens):
        """ids, targets and loss weights, each [tokens / length, length]."""
        pool = self.rows[length]
        pick = torch.randint(0, min(self.made[length], len(pool)), (tokens // length,), device=self.device)
        rows = pool[pick].long()
        ids = rows & (ANSWER_BIT - 1)
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), (rows[:, 1:] >= ANSWER_BIT).float()
