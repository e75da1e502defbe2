"""What all routes share: the engine, the tokenizer, the template, the limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ..llm.encoders import Encoder, EncoderEngine, EncoderPackage
from ..llm.engine import Driver, Engine, Replicas
from ..llm.generation_defaults import GenerationDefaults
from ..llm.images import ImagePrompts
from ..llm.json_object import read_object
from ..llm.package import Package
from ..llm.sounds import SoundPrompts
from .chat_template import ChatTemplate
from .errors import ApiError
from .media_parts import open_images, open_sounds
from .metrics import Metrics
from .options import ServeOptions
from .vocabulary import Vocabulary

_T = TypeVar("_T")


class Service:
    """One package being served. Ends with `close`.

    Args:
        engines: One or more of the package; their tokenizer is `vocabulary`.
        template: None refuses chats.
        defaults: What the checkpoint says about sampling.
        images: What sees images, or why nothing does.
        sounds: What hears sounds, or why nothing does.
        encoder: Of the first engine, if the package is an encoder, which writes no text.
        folder: Of the package.

    Attributes:
        family: `model_type` of the checkpoint.
        executor: threads for what takes long: tokenizing, templates, grammars.
        is_closing: nothing new is taken.
    """

    def __init__(
        self,
        engines: Replicas,
        vocabulary: Vocabulary,
        template: ChatTemplate | None,
        defaults: GenerationDefaults,
        options: ServeOptions,
        images: ImagePrompts | str = "images are not read here",
        sounds: SoundPrompts | str = "sounds are not read here",
        encoder: Encoder | None = None,
        *,
        folder: Path,
    ):
        self.encoder, self.folder = encoder, folder
        config = read_object(folder / "tokenizer" / "config.json")
        self.family = str(config.get("model_type", "unknown"))
        self.images, self.sounds = images, sounds
        self.engines, self.vocabulary, self.template = engines, vocabulary, template
        self.defaults, self.options = defaults, options
        self.metrics = Metrics(engines, options.model)
        self.executor = ThreadPoolExecutor(4, "tcim-lite-serve")
        self._tower = ThreadPoolExecutor(1, "tcim-lite-tower")  # of its own: an image that is being seen delays no text
        self.is_closing = False

    @classmethod
    def open(
        cls,
        package: Package,
        options: ServeOptions,
        *,
        chat_template: Path | None = None,
        devices: Sequence[Sequence[int]] = ((0,),),
        **engine_options: Any,
    ) -> Service:
        """Loads a package, once for each entry of `devices`; `engine_options` are the others of `Engine.open`.

        Raises:
            FileNotFoundError, ValueError, ImportError: As `Vocabulary`, `ChatTemplate.of` and `Engine.open`; or an
                adapter has the model's name.
            TcimError: As `Engine.open`, `open_images` and `open_sounds`.
        """
        if options.model in engine_options.get("adapters", ()):
            raise ValueError(f"the base model and an adapter are both called {options.model!r}; rename one of them")
        vocabulary = Vocabulary(package.tokenizer_folder)
        template = ChatTemplate.of(package.tokenizer_folder, vocabulary, chat_template)
        images = open_images(package, vocabulary, devices[0][0])
        sounds = open_sounds(package, vocabulary, devices[0][0])
        opened = [Engine.open(package, tokenizer=vocabulary, devices=ids, **engine_options) for ids in devices]
        engines = Replicas([Driver(engine) for engine in opened])
        return cls(
            engines, vocabulary, template, package.generation_defaults, options, images, sounds, folder=package.folder
        )

    @classmethod
    def open_encoder(
        cls,
        package: EncoderPackage,
        options: ServeOptions,
        *,
        devices: Sequence[Sequence[int]] = ((0,),),
        max_waiting: int = 256,
    ) -> Service:
        """Loads an encoder, once for each entry of `devices`, which has one.

        Raises:
            FileNotFoundError, ValueError, ImportError: As `Vocabulary` and `Encoder`.
            TcimError: As `Encoder`.
        """
        vocabulary = Vocabulary(package.tokenizer_folder)
        vocabulary.longer = "--lengths"
        if wide := next((ids for ids in devices if len(ids) > 1), None):
            raise ValueError(
                f"--devices {','.join(map(str, wide))}: an encoder runs on one device; add --replicas {len(wide)} for "
                "one on each"
            )
        encoders = [Encoder(package, ids[0]) for ids in devices]
        size = vocabulary.backend_tokenizer.get_vocab_size()
        made = [Driver(EncoderEngine(encoder, size, max_waiting=max_waiting)) for encoder in encoders]
        defaults = GenerationDefaults.read(package.tokenizer_folder)
        return cls(Replicas(made), vocabulary, None, defaults, options, encoder=encoders[0], folder=package.folder)

    def check_writes(self) -> None:
        """Refuses a question for a text if the package writes none.

        Raises:
            ApiError: 404.
        """
        if self.encoder is not None:
            use = "/rerank, /v1/score, /predict or /classify" if self.encoder.ranks else "/v1/embeddings or /v1/rerank"
            raise ApiError(
                404, f"{self.options.model} is an encoder, which writes no text; use {use}", code="unsupported_route"
            )

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """What `work()` returns, computed in a thread of the executor."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    async def in_tower_thread(self, work: Callable[[], _T]) -> _T:
        """As `in_thread`, in the thread that runs the vision tower or the encoder of sounds."""
        return await asyncio.get_running_loop().run_in_executor(self._tower, work)

    def close(self) -> None:
        """Ends running answers and all threads."""
        self.is_closing = True
        self.engines.close(timeout=60.0)
        for executor in (self.executor, self._tower):
            executor.shutdown(cancel_futures=True)
        if self.template is not None:
            self.template.close()
