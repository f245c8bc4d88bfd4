"""The command line: `kvell serve`, `plan`, `pull`, `chat`, `bench`. Every failure is one line on standard error.

Exit codes: 0 as asked, 1 it can't be done, 2 it was asked wrongly. Knows terminals; composes nothing (`server.app`).
"""

import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated

import httpx
import typer
import uvloop
from rich.console import Console

from model.errors import CheckpointError
from server import catalogue, chat_client, door, planning, terminal
from server import top as server_top
from server.api.serving import ServedModel
from server.app import Running
from server.bench import command as bench
from server.config import build_config
from server.engine.errors import StartupFailed
from server.engine.wire import Ready
from server.keys import KeyFileError, KeyRing, read_keys
from server.logs import set_up_logging
from server.setting import SIZES, ConfigError, Setting, parse_bytes
from server.settings import DEFAULT_MODEL, SETTINGS
from server.tracing import open_tracing

app = typer.Typer(
    help="Serve a language model over HTTP, with the API that OpenAI's clients speak.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.add_typer(bench.app, name="bench")

AcceptTerms = Annotated[
    bool, typer.Option("--accept-terms", envvar="KVELL_ACCEPT_TERMS", help="Agree to the model's terms of use.")
]


def main() -> None:
    """The console script."""
    app(prog_name="kvell")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What a user can mend is said in one line, without a traceback."""
    try:
        yield
    except (ConfigError, CheckpointError, StartupFailed, door.DoorError, KeyFileError, httpx.HTTPError) as error:
        print(f"kvell: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
        raise SystemExit(2 if isinstance(error, ConfigError) else 1) from None
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


def serve(*, accept_terms: bool, **flags: str | None) -> None:
    """Serve MODEL: a .gguf file, a directory in Hugging Face's layout, hf:owner/name, or a name of the catalogue."""
    # until the server's own handlers are in place; as process 1 of a container, SIGTERM would otherwise do nothing
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with _one_line_errors():
        config = build_config({setting.name: flags[_variable(setting)] for setting in SETTINGS}, os.environ)
        set_up_logging(config.log_level, config.log_format)
        as_json = config.log_format == "json"
        console = Console(stderr=as_json)  # whose lines are records then
        tracing = open_tracing(config, os.environ)
        keys = KeyRing(partial(read_keys, config))
        door.check_certificate(config)
        listener = door.bind(config.host, config.port)
        found = catalogue.pull(config.model, accept_terms=accept_terms, console=console)
        door.listen(listener)
        config = replace(config, engine=replace(config.engine, model_path=str(found.path)))
        running = Running(
            config,
            listener,
            model_id=config.served_model_name or found.model_id,
            keys=keys,
            generation=found.generation,
            tracing=tracing,
        )

        def on_ready(info: Ready, model: ServedModel) -> None:
            bar.close()
            chats = model.template is not None
            url = door.url(listener, tls=config.tls_certfile is not None)
            if as_json:
                return terminal.log_ready(info, url=url, model_id=model.id)
            terminal.announce(console, info, url=url, model_id=model.id, chats=chats, needs_key=bool(keys))

        with ExitStack() as bar:
            show = bar.enter_context(terminal.loading_bar(console))
            uvloop.run(running.run(on_progress=show, on_ready=on_ready))


def _variable(setting: Setting) -> str:
    return setting.name.replace("-", "_")


def _parameter(setting: Setting) -> inspect.Parameter:
    """A setting as typer sees it: always a text or nothing, as `build_config` checks flags and environment alike."""
    text = (
        f"{setting.help[0].upper()}{setting.help[1:]}. [{setting.allowed}; default: {setting.default}; {setting.env}]"
    )
    info = (
        typer.Argument(metavar="MODEL", help=text, show_default=False)
        if setting.name == "model"
        else typer.Option(setting.flag, metavar="VALUE", help=text, show_default=False)
    )
    return inspect.Parameter(
        _variable(setting), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, info]
    )


def _extra(name: str, default: object, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _add_command(command: Callable[..., None], settings: Sequence[Setting], *more: inspect.Parameter) -> None:
    """With a flag for each of these settings."""
    parameters = [*map(_parameter, settings), *more, _extra("accept_terms", False, AcceptTerms)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    app.command()(command)


def plan(*, accept_terms: bool, memory: str | None, json: bool, **flags: str | None) -> None:
    """How much memory a model needs and how many tokens fit, without loading its weights."""
    with _one_line_errors():
        config = build_config({s.name: flags[_variable(s)] for s in PLANNED}, os.environ)
        free = None if memory is None else MEMORY.read(memory)
        found = catalogue.pull(config.model, accept_terms=accept_terms, console=Console(stderr=True))
        engine = replace(config.engine, model_path=str(found.path))
        made = planning.plan_of(engine, memory_bytes=free if isinstance(free, int) else None)
        if json:
            print(planning.as_json(made, found.model_id))
        else:
            planning.show(made, found.model_id, Console())


PLANNED = tuple(setting for setting in SETTINGS if setting.name in planning.MATTER)
MEMORY = Setting("memory", None, parse_bytes, SIZES, "what is free here", "memory that is free for the engine")
_add_command(serve, SETTINGS)
_add_command(
    plan,
    PLANNED,
    _extra(
        "memory", None, Annotated[str | None, typer.Option(metavar="VALUE", help=f"Memory that is free. [{SIZES}]")]
    ),
    _extra("json", False, Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")]),
)


@app.command()
def pull(
    model: Annotated[str, typer.Argument(help="A name of the catalogue, or hf:owner/name.")] = DEFAULT_MODEL,
    accept_terms: AcceptTerms = False,
) -> None:
    """Fetch a model, check it, and say where it is."""
    console = Console(stderr=True)
    with _one_line_errors():
        found = catalogue.pull(model, accept_terms=accept_terms, console=console)
        print(found.path)


@app.command()
def chat(
    url: Annotated[str, typer.Option(envvar="KVELL_URL", help="Where the server is.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str | None, typer.Option(envvar="KVELL_API_KEY", help="Key, if the server needs one.")] = None,
    model: Annotated[str | None, typer.Option(help="Model to ask. Default: the first that the server has.")] = None,
    system: Annotated[str | None, typer.Option(help="A system message to begin with.")] = None,
) -> None:
    """Talk to a running server in the terminal. Ctrl-C stops a reply, Ctrl-D or /exit leaves."""
    with _one_line_errors():
        chat_client.run(url, api_key=api_key, model=model, system=system)


@app.command()
def top(
    url: Annotated[str, typer.Option(envvar="KVELL_URL", help="Where the server is.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str | None, typer.Option(envvar="KVELL_API_KEY", help="Key, if the server needs one.")] = None,
) -> None:
    """Watch a running server: rates, requests and the KV cache's blocks. q leaves. Without a terminal: one look."""
    with _one_line_errors():
        server_top.run(url, api_key=api_key)
