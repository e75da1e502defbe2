"""`tcim-lite completion`: a script that makes a shell complete commands, options and their values."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "fish")


HELP = "print a script that makes a shell complete this command"
DESCRIPTION = (
    'Prints a completion script. bash and zsh: eval "$(tcim-lite completion bash)" in the startup file '
    "(zsh: completion zsh, after compinit); fish: tcim-lite completion fish | source."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    from . import commands_of, make_parser

    commands = commands_of(make_parser())
    print(_fish(commands) if args.shell == "fish" else _bash(commands, zsh=args.shell == "zsh"))
    return 0


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        for option in action.option_strings:
            yield option, action


def _choices(action: argparse.Action) -> str:
    return " ".join(map(str, action.choices or ()))


def _positional_choices(parser: argparse.ArgumentParser) -> str:
    return " ".join(filter(None, (_choices(action) for action in parser._actions if not action.option_strings)))


def _bash(commands: dict[str, argparse.ArgumentParser], *, zsh: bool) -> str:
    """Words for what is known; nothing where a path is expected, so that the shell completes files."""
    values = [
        f'    "{name} {option}") words="{_choices(action)}" ;;'
        for name, parser in commands.items()
        for option, action in _options(parser)
        if action.choices
    ]
    options = [
        f'      {name}) words="{" ".join(option for option, _ in _options(parser))}" ;;'
        for name, parser in commands.items()
    ]
    positionals = [
        f'      {name}) words="{words}" ;;'
        for name, parser in commands.items()
        if (words := _positional_choices(parser))
    ]
    lines = [
        *(["autoload -U +X bashcompinit && bashcompinit"] if zsh else []),
        "_tcim_lite() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words=""',
        '  case "$command ${COMP_WORDS[COMP_CWORD-1]}" in',
        *values,
        "  esac",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    words="{" ".join(commands)} --help --version"',
        '  elif [ -z "$words" ] && [ "${word#-}" != "$word" ]; then',
        '    case "$command" in',
        *options,
        "    esac",
        '  elif [ -z "$words" ]; then',
        '    case "$command" in',
        *positionals,
        "    esac",
        "  fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _tcim_lite tcim-lite",
    ]
    return "\n".join(lines)


def _fish(commands: dict[str, argparse.ArgumentParser]) -> str:
    lines = [
        f"complete -c tcim-lite -n __fish_use_subcommand -f -a {name} -d {_quoted(parser.description)}"
        for name, parser in commands.items()
    ]
    for name, parser in commands.items():
        seen = f"complete -c tcim-lite -n '__fish_seen_subcommand_from {name}'"
        if words := _positional_choices(parser):
            lines.append(f"{seen} -f -a '{words}'")
        for option, action in _options(parser):
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            value = f" -x -a '{_choices(action)}'" if action.choices else " -r" if action.nargs != 0 else ""
            lines.append(f"{seen} {kind}{value} -d {_quoted(action.help)}")
    return "\n".join(lines)


def _quoted(text: str | None) -> str:
    """The first sentence, in the quotes of fish."""
    sentence = " ".join((text or "").split()).split(". ")[0].replace("%(default)s", "...")
    return "'" + sentence.replace("\\", "\\\\").replace("'", "\\'") + "'"
