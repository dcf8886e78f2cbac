"""What is shipped: a light import, and a wheel and a source archive that hold all that is needed."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import meannet
from meannet import kept, recipes
from meannet.fast import build

PROJECT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "sklearn", "numpy", "scipy", "matplotlib", "rich")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    offline = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "build", *offline, "--outdir", str(out), str(PROJECT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not offline and "No matching distribution" in done.stdout + done.stderr:
        pytest.skip("hatchling is not installed, and no package index answers to get it from")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_wheel_holds_the_types_the_page_and_every_module(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"meannet/py.typed", "meannet/report/page.html", "meannet/bench/peers/torch_eager.py"} <= names
    assert {str(path.relative_to(PROJECT / "src")) for path in (PROJECT / "src").rglob("*.py")} <= names
    assert all(name.startswith(("meannet/", f"meannet-{meannet.__version__}.dist-info/")) for name in names)


def test_the_wheel_carries_the_kernel_and_its_platform_where_there_is_a_compiler(built):
    if build.compiler() is None:
        pytest.skip("there is no C++ compiler")
    (wheel,) = built.glob("*.whl")
    assert f"meannet/fast/{build.LIBRARY}" in zipfile.ZipFile(wheel).namelist() and "-none-any" not in wheel.name


def test_without_a_compiler_the_wheel_is_for_any_platform(tmp_path):
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed")
    checkout = tmp_path / "checkout"  # a kernel of the checkout would be gone
    shutil.copytree(PROJECT / "src", checkout / "src", ignore=shutil.ignore_patterns(build.LIBRARY, "__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, checkout)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(checkout)]
    done = subprocess.run(command, env=os.environ | {"CXX": "/bin/false"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(build.LIBRARY) for name in zipfile.ZipFile(wheel).namelist())


def test_the_wheels_metadata_is_the_packages(built):
    (wheel,) = built.glob("*.whl")
    folder = f"meannet-{meannet.__version__}.dist-info"
    archive = zipfile.ZipFile(wheel)
    metadata = message_from_string(archive.read(f"{folder}/METADATA").decode())
    assert (metadata["Name"], metadata["Version"]) == ("meannet", meannet.__version__)
    assert {"torch", "numpy", "scikit-learn", "safetensors", "rich"} <= {
        requirement.partition(">")[0] for requirement in metadata.get_all("Requires-Dist", [])
    }
    assert "meannet = meannet.cli:main" in archive.read(f"{folder}/entry_points.txt").decode()


def test_the_source_archive_holds_sources_tests_and_licence(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/meannet/cli.py", "tests/test_package.py"} <= names


def test_the_wheel_works_where_the_checkout_is_not(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    command = [sys.executable, "-m", "meannet", "list", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {row["recipe"]: row["kept"] for row in json.loads(done.stdout)["recipes"]}
    assert found == {recipe: kept.summary(recipe) for recipe in recipes.RECIPES} and found["digits"]


@pytest.mark.parametrize("does", ["import meannet", "from meannet.cli import main; main(['--help'])"])
def test_importing_and_asking_for_help_load_nothing_heavy(does):
    program = (
        f"import sys\ntry:\n    {does}\nexcept SystemExit:\n    pass\nprint(*(n for n in {HEAVY} if n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_what_the_package_offers_is_there_on_demand():
    assert callable(meannet.run) and callable(meannet.resume) and meannet.Experiment.__name__ == "Experiment"
    assert set(meannet.__all__) <= set(dir(meannet))
    with pytest.raises(AttributeError, match="nosuch"):
        meannet.__getattr__("nosuch")
