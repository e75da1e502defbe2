"""`tcim-lite serve`: a package behind OpenAI's HTTP interface."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from .adapters import adapters_of, add_adapter_argument
from .opening import (
    COMPILE_OPTIONS,
    add_model_arguments,
    encoder_of,
    explained,
    open_package,
    shares_of,
    speculate_of,
    start_log,
    take_model,
)

HELP = "serve a package over HTTP, as the APIs of OpenAI, Anthropic and Ollama"
DESCRIPTION = (
    "Serves a package: /v1/chat/completions, /v1/messages, /api/chat, /metrics, a page to chat at /, and more. Compile "
    "with --batch B to answer B requests at a time. SIGTERM, SIGHUP and Ctrl-C let running answers end."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser, log_level="info")
    add_adapter_argument(parser, "an adapter of a package of `compile --lora`, served as the model NAME; repeatable")
    parser.add_argument(
        "--hidden-states",
        action="store_const",
        const=-1,
        help="of a checkpoint: compile it as `tcim-lite compile --hidden-states` does, for /v1/embeddings",
    )
    parser.add_argument(
        "--replicas", type=int, default=1, metavar="N", help="engines side by side, each on an equal share of --devices"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s: this machine only)")
    parser.add_argument("--port", type=int, default=8000, help="%(default)s; 0 takes a free one and prints it")
    parser.add_argument(
        "--api-key",
        action="append",
        metavar="KEY",
        help="key that clients must send; safer in TCIM_LITE_API_KEY, which ps does not show",
    )
    parser.add_argument(
        "--cors-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="a site whose pages may use this server, such as https://chat.example; * is every site (none)",
    )
    parser.add_argument("--served-model-name", metavar="NAME", help="what clients call the model (the package's name)")
    parser.add_argument(
        "--prefix-cache-mb", type=float, default=0, metavar="MB", help="host memory for rows of earlier prompts"
    )
    parser.add_argument("--chat-template", type=Path, metavar="FILE", help="instead of the package's")
    parser.add_argument("--max-queue", type=int, default=256, metavar="N", help="requests that may wait (%(default)s)")
    parser.add_argument(
        "--prefill-per-decode", type=int, default=1, metavar="K", help="chunks between two decode steps (%(default)s)"
    )
    parser.add_argument("--max-body-mb", type=float, default=32, metavar="MB", help="of a request (%(default)s)")
    parser.add_argument("--timeout", type=float, default=600, metavar="S", help="for one answer (%(default)s)")
    parser.add_argument(
        "--shutdown-timeout", type=float, default=30, metavar="S", help="for running answers at SIGTERM (%(default)s)"
    )
    parser.add_argument(
        "--stall-timeout", type=float, default=60, metavar="S", help="for a client that takes nothing (%(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    """Serves until a signal ends it."""
    return explained(lambda: _serve(args), "serve")


def _serve(args: argparse.Namespace) -> int:
    from ..llm.package import Package
    from ..serve.options import ServeOptions
    from ..serve.run import listen, run
    from ..serve.service import Service

    take_model(args)
    start_log(args)
    encoder = encoder_of(args)
    # With argmax, greedy answers need no logits.
    package = encoder or open_package(args, batch=4, argmax=args.hidden_states is None, vision="")
    keys = [*(args.api_key or ()), *filter(None, [os.environ.get("TCIM_LITE_API_KEY")])]
    options = ServeOptions(
        model=package.name if args.served_model_name is None else args.served_model_name,
        api_keys=tuple(keys),
        cors_origins=tuple(args.cors_origin),
        max_body_bytes=_bytes("--max-body-mb", args.max_body_mb),
        timeout_s=args.timeout,
        shutdown_s=args.shutdown_timeout,
        stall_s=args.stall_timeout,
    )
    prefix_cache_bytes = _bytes("--prefix-cache-mb", args.prefix_cache_mb)
    with listen(args.host, args.port) as listener:
        if isinstance(package, Package):
            service = Service.open(
                package,
                options,
                chat_template=args.chat_template,
                devices=shares_of(args),
                pipeline=args.pipeline,
                adapters=adapters_of(args, package),
                speculate=speculate_of(args),
                max_waiting=args.max_queue,
                chunks_per_step=args.prefill_per_decode,
                prefix_cache_bytes=prefix_cache_bytes,
            )
        else:
            _refuse_text_options(args)
            service = Service.open_encoder(package, options, devices=shares_of(args), max_waiting=args.max_queue)
        host, port = listener.getsockname()[:2]
        slots = len(service.engines.snapshot())
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

        def ready() -> None:
            print(f"serving {options.model}, {slots} slot{'s' * (slots != 1)}, at {url}", flush=True)

        run(service, listener, ready)
    return 0


def _refuse_text_options(args: argparse.Namespace) -> None:
    """Refuses options that change how a text is written, or a checkpoint compiled.

    Raises:
        ValueError: One is given.
    """
    for name in (*COMPILE_OPTIONS, "lora", "speculate", "pipeline", "chat_template", "prefix_cache_mb"):
        if getattr(args, name, None):
            raise ValueError(
                f"--{name.replace('_', '-')}: {args.model} is an encoder compiled from ONNX, for which the option "
                "changes nothing; leave it out"
            )


def _bytes(option: str, megabytes: float) -> int:
    if not 0 <= megabytes < math.inf:
        raise ValueError(f"{option} {megabytes}: expected a number, 0 or more")
    return int(megabytes * 2**20)
