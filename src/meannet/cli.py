"""The command line: list, show, run, eval, report, claims, data, fit, predict, speech, export, bench, sweep."""

import argparse
import io
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import IO, Any, cast

from meannet import __version__, config, recipes
from meannet.config import Experiment, text_of
from meannet.pipes import Unread, Watched

EXIT_FAILED, EXIT_WRONG = 1, 2
# Torch's threads spin so often before they sleep. More takes the core from those that work, where another program needs
# one; fewer, and waking them costs as much as the small products of pretraining.
SPINS = "1000"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code. An error is one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)  # which torch reads as it is loaded
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed before we began; what is opened next must not take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± is no reason to fail
    options = parser().parse_args(arguments)
    options.command = shlex.join(["meannet", *arguments])
    try:
        with redirect_stdout(cast(IO[str], Watched(sys.stdout))):
            code = options.call(options)
            sys.stdout.flush()
        return code
    except ValueError as error:
        return _fail(error, EXIT_WRONG)
    except Unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except (OSError, RuntimeError) as error:
        return _fail(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _fail(error: Exception, code: int) -> int:
    text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
    with suppress(OSError):  # nobody may be left to read it
        print(f"meannet: {' '.join(text.split())}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """argparse, with errors in the one-line form of the other commands, and flags as they are written."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
            hint = f"; {config.nearest(unknown[0], flags)}" if unknown[0].startswith("-") else ""
            self.error(f"{self.prog} takes no {unknown[0]!r}{hint}")
        return known, unknown

    def error(self, message: str) -> Any:
        wrong = re.match(r"argument (\w+): invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            known = wrong[3].replace("'", "").split(", ")
            message = f"no {wrong[1].lower()} {wrong[2]!r}; {config.nearest(wrong[2], known)}"
        print(f"meannet: {message} (see `{self.prog} --help`)", file=sys.stderr)
        raise SystemExit(EXIT_WRONG)


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="meannet", description="Dropout as Hinton et al. described it in 2012.")
    top.add_argument("--version", action="version", version=f"meannet {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, call: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(call=call)
        return command

    one = add("list", list_recipes, "each recipe with its section of the paper, the claim and our kept result")
    one.add_argument("start", metavar="NAME", nargs="?", default="", help="those whose names begin so, such as mnist")
    one.add_argument("--json", action="store_true")
    one = add("show", show, "every setting of a recipe, with its section of the paper")
    one.add_argument("recipe", metavar="RECIPE")
    one.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="settings")
    one.add_argument("--json", action="store_true")
    one = add("run", run, "train all arms and seeds of a recipe")
    one.add_argument("recipe", metavar="RECIPE", nargs="?", help="a recipe, ./file.py:NAME, or an experiment.json")
    one.add_argument("--resume", metavar="DIR", help="go on where the run in DIR stopped, saving as often as before")
    one.add_argument("--seeds", type=int, metavar="N", help="how many seeds, counted from 0")
    one.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="settings")
    one.add_argument("--device", default="auto", metavar="auto|cpu|cuda")
    one.add_argument("--path", default="auto", metavar="auto|plain|fast", help="which version of the update to use")
    choice = "auto|bfloat16|tf32|float32"
    one.add_argument(
        "--precision",
        default="auto",
        metavar=choice,
        help="of products, on a GPU's fast path; those of pretraining are TF32 there",
    )
    one.add_argument("--out", metavar="DIR", help="the run folder; runs/RECIPE where not given")
    one.add_argument("--quick", action="store_true", help="one net, two seeds, few epochs")
    one.add_argument("--save-minutes", type=float, metavar="M", help="save every M minutes (1)")
    one.add_argument("--save-epochs", type=int, metavar="N", help="save every N epochs as well")
    one.add_argument("--workers", type=int, metavar="N", help="processes that decode pictures in shards")
    one.add_argument("--json", action="store_true")
    one = add("eval", evaluate, "the mean network of each net beside means of sampled networks")
    one.add_argument("run", metavar="RUN")
    one.add_argument("--samples", type=int, default=50, metavar="K")
    one.add_argument("--device", default="auto", metavar="auto|cpu|cuda")
    one.add_argument("--json", action="store_true")
    one = add("report", report, "one self-contained page about one or several runs")
    one.add_argument("runs", metavar="RUN", nargs="+")
    one.add_argument("-o", "--out", required=True, metavar="FILE.html")
    one = add("claims", claims, "the paper's theorems and inequalities, checked by enumeration")
    one.add_argument("--json", action="store_true")
    one = add(
        "data",
        _later("meannet.data.tell", "data_and_tell"),
        "where each data set is; get it; verify it; prepare raw pictures",
    )
    one.add_argument("action", choices=("list", "fetch", "check", "prepare"))
    one.add_argument("name", metavar="NAME", nargs="?")
    one.add_argument("source", metavar="SRC", nargs="?", help="of prepare: raw pictures; of check recordings: yours")
    one.add_argument("--workers", type=int, metavar="N", help="of prepare: processes; as many as there are cores")
    one.add_argument("--force", action="store_true", help="fetch anew, whatever is there")
    one.add_argument("--json", action="store_true")
    one = add(
        "fit",
        _later("meannet.fit", "fit_and_tell"),
        "a net for a table of one's own, judged beside the same net without dropout, and saved",
    )
    one.add_argument("file", metavar="TABLE.csv", help="its first line names the columns")
    one.add_argument("column", metavar="COLUMN", help="what to predict: labels, or numbers")
    one.add_argument("-o", "--out", metavar="FILE.safetensors", help="train on all rows, too, and save the net there")
    one.add_argument("--as", metavar="labels|numbers", dest="kind", help="what COLUMN holds, where that is not clear")
    one.add_argument("--drop", action="append", default=[], metavar="NAME", help="a column to leave out")
    one.add_argument("--words", action="append", default=[], metavar="NAME", help="its numbers are names of something")
    one.add_argument("--folds", type=int, default=5, metavar="K", help="to judge by (5); 0 judges nothing")
    one.add_argument("--repeats", type=int, default=2, metavar="N", help="how often rows are dealt out to folds (2)")
    one.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings", help="of the net")
    one.add_argument("--force", action="store_true", help="replace a file that is there")
    one.add_argument("--json", action="store_true")
    one = add(
        "predict",
        _later("meannet.predict", "predict_and_tell"),
        "labels and probabilities for new cases, from the mean network",
    )
    _choosing_a_net(one)
    one.add_argument("files", metavar="FILE", nargs="+", help="a table (.npy, .csv), pictures, or a folder of pictures")
    one.add_argument("-o", "--out", metavar="FILE.csv|FILE.json", help="write there instead of to stdout")
    one.add_argument("--force", action="store_true", help="replace a file that is there")
    one.add_argument("--json", action="store_true", help="JSON on stdout, instead of CSV")
    one = add("speech", _later("meannet.transcribe", "decode_and_tell"), "phones with times, from a recording")
    one.add_argument("action", choices=("decode",))
    _choosing_a_net(one, divided=False)
    one.add_argument("file", metavar="FILE.wav", help="RIFF or SPHERE, one channel, 16 bits, the run's sampling rate")
    one.add_argument("-o", "--out", metavar="FILE.TextGrid", help="write a TextGrid for Praat, too")
    one.add_argument("--force", action="store_true", help="replace a file that is there")
    one.add_argument("--device", default="auto", metavar="auto|cpu|cuda")
    one.add_argument("--json", action="store_true", help="JSON on stdout, instead of a table")
    one = add("export", _later("meannet.predict", "export_and_tell"), "the mean network for other programs")
    _choosing_a_net(one)
    one.add_argument("--to", required=True, metavar="onnx|pt2|torch")
    one.add_argument("-o", "--out", required=True, metavar="FILE", help=".onnx, .pt2, or .safetensors for torch")
    one.add_argument("--force", action="store_true", help="replace a file that is there")
    one = add(
        "bench", _later("meannet.bench.tell", "bench_and_tell"), "speed beside peers that are installed, all in one run"
    )
    one.add_argument("--scaling", action="store_true", help="instead: how time and memory grow with width, nets, batch")
    one.add_argument("--neighbour", action="store_true", help="instead: speed beside one busy process on two cores")
    one.add_argument("--overhead", action="store_true", help="instead: what a run costs beside updates; prediction")
    one.add_argument("--tables", action="store_true", help="instead: errors on small tables beside scikit-learn's")
    one.add_argument("--choose", action="store_true", help="instead: other tables, on which defaults were chosen")
    one.add_argument("--pretrain", action="store_true", help="instead: contrastive divergence on 784-500")
    one.add_argument("--images", action="store_true", help="instead: the image nets beside plain eager PyTorch")
    one.add_argument("--imagenet", action="store_true", help="instead: H's nets, pictures on the device; ten views")
    one.add_argument("--loader", action="store_true", help="instead: preparing and decoding of pictures, on CPU cores")
    one.add_argument("--ranks", action="store_true", help="instead: 1 to 8 ranks of one thread that share mini-batches")
    one.add_argument("--speech", action="store_true", help="instead: seconds of work for a second of speech")
    one.add_argument("--device", default="auto", metavar="auto|cpu|cuda")
    one.add_argument("-o", "--out", metavar="FILE.svg", help="the curves of --scaling")
    one.add_argument("--json", action="store_true")
    one = add("sweep", sweep, "choose an architecture on held-out cases, never on the test set")
    one.add_argument("recipe", metavar="RECIPE", help="a recipe, ./file.py:NAME, or an experiment.json")
    one.add_argument("--trials", type=int, required=True, metavar="N", help="how many, with those done before")
    one.add_argument("--storage", metavar="URL", help="a database, as sqlite:///sweep.db, that several processes share")
    one.add_argument("--arm", metavar="NAME", help="whose settings; the paper's claim's, or the last that omits units")
    one.add_argument("--seeds", type=int, metavar="K", help="how many seeds, counted from 0; the recipe's first two")
    one.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", dest="settings", help="not searched")
    one.add_argument("--device", default="auto", metavar="auto|cpu|cuda")
    one.add_argument("--out", metavar="DIR", help="where to begin, or go on; runs/RECIPE-sweep where not given")
    one.add_argument("--quick", action="store_true", help="few epochs")
    one.add_argument("--json", action="store_true")
    return top


def _later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """A command whose module is loaded when it is called: `--help` and mistakes need neither torch nor scikit-learn."""
    return lambda options: getattr(import_module(module), function)(options)


def _choosing_a_net(command: argparse.ArgumentParser, *, divided: bool = True) -> None:
    command.add_argument("run", metavar="RUN", help="a run folder" + ", or an estimator that was saved" * divided)
    command.add_argument("--net", metavar="NAME", help="which architecture, where a run has several")
    command.add_argument("--arm", metavar="NAME", help="which arm; the paper's claim's, or the last, where not given")
    if not divided:
        command.add_argument("--seed", metavar="N", help="which seed; the first where not given")
        return
    command.add_argument("--seed", metavar="N|all", help="which seed, or all averaged; the first where not given")
    command.add_argument("--divide", type=float, metavar="D", help="pixels go up to D, not to 1; the net divides them")


def list_recipes(options: argparse.Namespace) -> int:
    from meannet.kept import summary

    rows: list[dict[str, Any]] = []
    names = [name for name in recipes.RECIPES if name.startswith(options.start)]
    if not names:
        raise ValueError(f"no recipe begins with {options.start!r}; {config.nearest(options.start, recipes.RECIPES)}")
    for name in names:
        experiment = recipes.get(name)
        best = summary(name)
        rows.append(
            {
                "recipe": name,
                "paper": experiment.paper,
                "about": experiment.about,
                "claims": config.to_json(experiment.claims),
                "kept": best,
                "time": experiment.time,
            }
        )
    if options.json:
        print(json.dumps({"recipes": rows}, indent=1))
        return 0
    from meannet import screen

    table = screen.table("recipe", "paper", "the paper's claim", "our kept result", "time")
    for _, of_one in groupby(rows, lambda row: row["recipe"].partition(".")[0]):
        if table.rows:
            table.add_row()  # a blank line between data sets
        for row in of_one:
            claim = "; ".join(f"{c['arm']} {c['value']:g}{' %' * c['unit'].startswith('%')}" for c in row["claims"])
            table.add_row(row["recipe"], row["paper"], claim or "–", row["kept"] or "not yet", row["time"])
    screen.console().print(table)
    return 0


def show(options: argparse.Namespace) -> int:
    experiment = config.override(recipes.get(options.recipe), options.settings)
    if options.json:
        print(json.dumps(config.to_json(experiment), indent=1))
        return 0
    from meannet import screen

    sources = {source.path: source for source in experiment.sources}
    table = screen.table("setting", "value", "where from")
    for path, value in config.settings(experiment).items():
        source = sources.get(path)
        origin = source.section if source else ""
        if source and source.paper and source.paper != text_of(value):
            origin += f"; the paper has {source.paper}"
        table.add_row(path, text_of(value), origin)
    console = screen.console()
    console.print(f"{experiment.recipe}: {experiment.about}\npaper: {experiment.paper}\n")
    console.print(table)
    return 0


def run(options: argparse.Namespace) -> int:
    if options.resume is not None:
        given = {"RECIPE": options.recipe, "--seeds": options.seeds, "--set": options.settings or None}
        given |= {"--out": options.out, "--quick": options.quick or None}
        for flag in (flag for flag, value in given.items() if value is not None):
            raise ValueError(f"--resume goes on with the settings in the folder; drop {flag}")
        experiment, out = None, Path(options.resume)
    elif options.recipe:
        experiment = chosen(options)
        _point_out_own(experiment, options.settings)
        # Workers that torchrun starts, and starts anew, must all come to the same folder.
        usual = _usual_folder if "TORCHELASTIC_RUN_ID" in os.environ else _free_folder
        out = Path(options.out) if options.out else usual(experiment.recipe)
    else:
        raise ValueError(f"name a recipe or --resume DIR; there is {', '.join(recipes.RECIPES)}")
    if options.save_minutes is not None and not options.save_minutes > 0:
        raise ValueError(f"--save-minutes must be above 0, not {options.save_minutes:g}")
    if options.save_epochs is not None and options.save_epochs < 1:
        raise ValueError(f"--save-epochs must be 1 or more, not {options.save_epochs}")
    if options.workers is not None and options.workers < 0:
        raise ValueError(f"--workers must be 0 or more, not {options.workers}")
    from meannet.console import run_and_tell

    return run_and_tell(experiment, out, options)


def chosen(options: argparse.Namespace) -> Experiment:
    """The recipe with --quick, --seeds and --set applied, in this order."""
    experiment = recipes.get(options.recipe)
    if options.quick:
        experiment = experiment.quick()
    if options.seeds is not None:
        if options.seeds < 1:
            raise ValueError(f"--seeds must be 1 or more, not {options.seeds}")
        experiment = replace(experiment, seeds=tuple(range(options.seeds)))
    return config.override(experiment, options.settings)


def _point_out_own(experiment: Experiment, settings: Sequence[str]) -> None:
    for name in ("lr", "limit"):
        own = [arm.name for arm in experiment.arms if getattr(arm, name) is not None]
        if own and any(setting.startswith(f"optim.{name}=") for setting in settings):
            print(
                f"note: {' and '.join(own)} has its own {name}; to change that too, --set arms.{own[0]}.{name}=…",
                file=sys.stderr,
            )


def _usual_folder(recipe: str) -> Path:
    return Path("runs") / recipe.replace("/", "_")


def _free_folder(recipe: str) -> Path:
    """runs/RECIPE, or the first of runs/RECIPE-2, runs/RECIPE-3, … that is not there."""
    base = _usual_folder(recipe)
    number, path = 1, base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def evaluate(options: argparse.Namespace) -> int:
    from meannet.console import evaluate_and_tell

    return evaluate_and_tell(options)


def report(options: argparse.Namespace) -> int:
    from meannet import report as page

    page.write([Path(folder) for folder in options.runs], Path(options.out))
    print(f"wrote {options.out}")
    return 0


def claims(options: argparse.Namespace) -> int:
    from meannet.claims import check_all

    found = check_all()
    if options.json:
        print(json.dumps({"claims": found}, indent=1))
    else:
        for claim in found:
            bound = "measured" if claim["bound"] is None else f"bound {claim['bound']:g}"
            verdict = "      " if claim["bound"] is None else "holds " if claim["holds"] else "FAILS "
            print(
                f"{verdict} {claim['name']} ({claim['paper']})\n       {claim['says']}: {claim['value']:.3g}, {bound}"
            )
    return 0 if all(claim["holds"] for claim in found) else EXIT_FAILED


def sweep(options: argparse.Namespace) -> int:
    if options.trials < 1:
        raise ValueError(f"--trials must be 1 or more, not {options.trials}")
    experiment = chosen(options)
    out = Path(options.out) if options.out else _free_folder(f"{experiment.recipe}-sweep")
    try:
        from meannet.sweep.tell import sweep_and_tell
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("optuna", "sqlalchemy"):
            raise
        raise ValueError("a sweep needs optuna: pip install 'meannet[sweep]'") from None
    return sweep_and_tell(experiment, out, options)
