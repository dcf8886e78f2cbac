"""The study of a sweep: what Optuna proposes, and the database or journal that remembers what came of it."""

import os
import shlex
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import optuna
import sqlalchemy.exc
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from meannet import runlog
from meannet.atomic import write_atomically
from meannet.sweep.plan import Plan

TRIES = 5  # to open a database, since processes that make its tables at the same time are in each other's way


class Proposals(optuna.samplers.BaseSampler):
    """Optuna's tree-structured Parzen estimator; the first trial is the recipe's own.

    What it draws depends on the number of the trial and on those that finished before, not on who asks or how often a
    sweep was stopped: processes that share a study would otherwise draw the same.
    """

    def __init__(self, own: Mapping[str, float]):
        self.own = own

    def infer_relative_search_space(self, study: optuna.Study, trial: Any) -> dict[str, Any]:
        return {}

    def sample_relative(self, study: optuna.Study, trial: Any, search_space: dict[str, Any]) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: optuna.Study, trial: Any, param_name: str, param_distribution: Any) -> Any:
        if trial.number == 0:
            return self.own[param_name]
        seed = zlib.crc32(f"{trial.number} {param_name}".encode())
        return optuna.samplers.TPESampler(seed=seed).sample_independent(study, trial, param_name, param_distribution)


@contextmanager
def opened(plan: Plan, out: Path, url: str | None) -> Iterator[optuna.Study]:
    """The study in a database, or else in a journal in the folder, which no other process sweeps into meanwhile."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with ExitStack() as stack:
        storage = None if url is None else stack.enter_context(_database(url))  # a wrong one leaves no folder
        out.mkdir(parents=True, exist_ok=True)
        stack.enter_context(_alone(out))
        facts: dict[str, Any] = {"storage": storage or _journal(out / "journal.log"), "study_name": plan.name()}
        facts["sampler"] = Proposals(plan.drawn())
        try:
            study = optuna.load_study(**facts)
        except KeyError:
            study = None
        known = {folder(out, trial.number) for trial in (study.get_trials(deepcopy=False) if study else ())}
        if not set(out.glob("trial-*")) <= known:
            remedy = "give the settings and the --storage that it began with, or another --out"
            raise ValueError(f"{out} holds trials of another sweep; {remedy}")
        yield study or optuna.create_study(**facts, direction="minimize", load_if_exists=True)


@contextmanager
def _database(url: str) -> Iterator[optuna.storages.RDBStorage]:
    storage = None
    for left in reversed(range(TRIES)):
        try:
            # A connection may be gone after the hours that a trial takes; it is asked for before each use.
            storage = optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
            break
        except ImportError as error:
            raise ValueError(f"--storage needs a driver for that database: {error.__cause__ or error}") from None
        except sqlalchemy.exc.SQLAlchemyError:
            if not left:
                raise
            time.sleep(0.3)
    assert storage is not None
    try:
        yield storage
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _journal(path: Path) -> optuna.storages.JournalStorage:
    """A file of JSON lines; the lock and the part of a line that a killed process left are cleared away."""
    lock = JournalFileOpenLock(str(path))
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    content = path.read_bytes() if path.exists() else b""
    if not content.endswith(b"\n"):
        write_atomically(path, content[: content.rfind(b"\n") + 1])
    return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    if os.name == "nt":  # where a folder cannot be opened
        yield
        return
    handle = os.open(out, os.O_RDONLY)
    try:
        if not runlog.held(handle):
            raise OSError(f"another process is sweeping into {out}; wait for it, or give this one another --out")
        yield
    finally:
        os.close(handle)


@contextmanager
def naming_storage(out: Path, again: str) -> Iterator[None]:
    """A database that cannot be reached, or no longer, in one line."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        cause = error.__cause__ or error
        why = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        remedy = f"; with that put right, go on with: {again}" if (out / "sweep.json").exists() else ""
        raise RuntimeError(f"--storage: {why}{remedy}") from None


def without_password(command: str, url: str | None) -> str:
    """A command as it may be written down; a URL of no database is refused."""
    if url is None:
        return command
    try:
        parsed = sqlalchemy.make_url(url)
        parsed.get_dialect()
    except (sqlalchemy.exc.ArgumentError, ValueError):
        scheme, beyond, _ = url.partition("://")
        shown = f"{scheme}{beyond}{'…' * bool(beyond)}"
        raise ValueError(f"--storage must be the URL of a database, as sqlite:///sweep.db is, not {shown}") from None
    hidden = {name: "***" for name in parsed.query if "pass" in name.lower()}
    shown = parsed.update_query_dict(hidden).render_as_string().replace("%2A%2A%2A", "***")
    return shlex.join(word.replace(url, shown) for word in shlex.split(command))


def folder(out: Path, number: int) -> Path:
    """Where a trial runs."""
    return out / f"trial-{number:04}"
