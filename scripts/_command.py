"""The command line that the plotting scripts share: one clear line for a bad argument."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from _models import CHOICES, Choice
from matplotlib.figure import Figure

from sdesens import SDE, plots
from sdesens._checks import did_you_mean

SUFFIXES = (".png", ".svg", ".pdf")
FOLDER = Path("out")


class Command(argparse.ArgumentParser):
    """A parser with ``--model``, ``--out``, ``--seed`` and ``--quick``.

    Args:
        name: of the script, without ``.py``; also of the picture.
        about: what it draws.
        models: names of the models it can draw.
        examples: arguments of calls that are shown by ``--help``.
        model: the default one.
    """

    def __init__(
        self, name: str, about: str, models: Sequence[str], examples: Sequence[str], model: str
    ) -> None:
        lines = "\n".join(f"  python scripts/{name}.py {each}".rstrip() for each in examples)
        super().__init__(
            prog=f"{name}.py",
            description=textwrap.fill(about, 100),
            epilog=f"examples:\n{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.stem, self.models = name, tuple(models)
        self.quick: dict[str, int] = {}
        self.add_argument(
            "--model", type=self._model, default=model, metavar="NAME",
            help=f"one of {', '.join(models)} (default {model})",
        )  # fmt: skip
        self.add_argument(
            "--out", type=_picture, metavar="FILE",
            help=f"picture, {', '.join(SUFFIXES)} (default {FOLDER}/{name}_MODEL.png)",
        )  # fmt: skip
        self.add_argument("--seed", type=at_least(0), default=0, help="of the noise (default 0)")
        self.add_argument("--quick", action="store_true", help="less of everything: a rough look")

    def error(self, message: str) -> NoReturn:
        """One line, and where to read on."""
        self.exit(2, f"{self.prog}: error: {message} (--help shows examples)\n")

    def read(self, argv: Sequence[str] | None) -> tuple[argparse.Namespace, Choice, SDE]:
        """The arguments (``--quick`` has its way), the choice, the model; the folder is there."""
        arguments = self.parse_args(argv)
        for name, most in self.quick.items() if arguments.quick else ():
            setattr(arguments, name, min(getattr(arguments, name), most))
        if arguments.out is None:
            FOLDER.mkdir(exist_ok=True)
            arguments.out = FOLDER / f"{self.stem}_{arguments.model}.png"
        choice = CHOICES[arguments.model]
        try:
            return arguments, choice, choice.make()
        except ImportError as error:  # SciPy, for a surface
            self.error(str(error))

    def add_count(self, flag: str, about: str, least: int, default: int, quick: int) -> None:
        """A number of something, of which ``--quick`` takes at most ``quick``."""
        text = f"{about} (default {default}; {quick} at most by --quick)"
        action = self.add_argument(flag, type=at_least(least), default=default, help=text)
        self.quick[action.dest] = quick

    def add_parameter(self, panel: str) -> None:
        """``--parameter``, of the panel (b) or so."""
        text = f"parameter of panel ({panel}); the model's first by default"
        self.add_argument("--parameter", metavar="NAME", help=text)

    def parameter(self, arguments: argparse.Namespace, choice: Choice) -> str:
        """Its value, checked."""
        known, name = list(choice.parameters), arguments.parameter
        if name is not None and name not in known:
            self.error(
                f"argument --parameter: {name!r} is none of {', '.join(known)} of "
                f"{arguments.model}.{did_you_mean(name, known)}"
            )
        return name or known[0]

    def _model(self, name: str) -> str:
        if name not in self.models:
            raise argparse.ArgumentTypeError(
                f"{name!r} is none of {', '.join(self.models)}.{did_you_mean(name, self.models)}"
            )
        return name


def at_least(minimum: int) -> Any:
    """A type of argument: an integer from ``minimum`` on."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if value < minimum:
            raise argparse.ArgumentTypeError(f"{value} is less than {minimum}")
        return value

    return number


def _picture(text: str) -> Path:
    path = Path(text)
    if path.suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r} does not end in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(path.parent)!r}; make it first")
    return path


def say(message: str) -> None:
    """A word on what is done, where progress bars are shown."""
    print(message, file=sys.stderr, flush=True)


def letter_panels(figure: Figure, titles: Sequence[str]) -> None:
    """``(a)``, ``(b)`` and so on before the titles of the first axes."""
    for letter, ax, title in zip("abcdefghi", figure.axes, titles, strict=False):
        ax.set_title(f"({letter})  {title}")


def save(figure: Figure, out: Path) -> None:
    """Write the picture, by its suffix and without a date, and say where it is."""
    date = {".svg": "Date", ".pdf": "CreationDate"}.get(out.suffix)
    with plots.style():
        figure.savefig(out, metadata={date: None} if date else None)
    print(f"picture: {out}")
