"""What is built from the checkout is whole and works somewhere else."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
DATA = {"sdesens/py.typed", "sdesens/fused/driver.h", "sdesens/plots/paper.mplstyle"}
MODELS = sorted(p.name for p in (ROOT / "models").glob("*.py"))


def run(*command, cwd, **environment):
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, built from a copy so that the checkout stays as it is."""
    base = tmp_path_factory.mktemp("packaging")
    source = base / "source"
    left_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "out", "*.egg-info", ".*_cache"
    )
    shutil.copytree(ROOT, source, symlinks=True, ignore=left_out)
    isolation = ["--no-isolation"] if importlib.util.find_spec("setuptools") else []
    run(sys.executable, "-m", "build", *isolation, "--outdir", base / "dist", source, cwd=base)
    (wheel,) = (base / "dist").glob("*.whl")
    (sdist,) = (base / "dist").glob("*.tar.gz")
    return wheel, sdist


def modules():
    """Every module of the package, by its path in a wheel."""
    own = {str(p.relative_to(ROOT)) for p in (ROOT / "sdesens").rglob("*.py")}
    return own | {f"sdesens/models/{name}" for name in MODELS}


def test_the_wheel_has_every_module_the_models_and_the_type_marker(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    missing = (modules() | DATA) - names
    assert not missing
    assert not [n for n in names if n.startswith(("models/", "tests/", "scripts/", "notebooks/"))]


def test_the_sdist_has_every_module_the_models_and_the_type_marker(built):
    with tarfile.open(built[1]) as archive:
        members = {m.name.partition("/")[2]: m for m in archive.getmembers()}
    assert not (modules() | DATA | {"pyproject.toml"}) - set(members)
    for name in MODELS:
        assert members[f"sdesens/models/{name}"].isfile()


def test_the_wheel_works_in_a_fresh_environment_outside_the_checkout(built, tmp_path):
    """The environment sees torch and the like of this one, but not this checkout."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    site = Path(
        run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=tmp_path).strip()
    )
    run(
        sys.executable,
        *("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", site, built[0]),
        cwd=tmp_path,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )
    libraries = Path(torch.__file__).parents[1]
    program = """
import pathlib, sdesens, sdesens.models, torch
print(pathlib.Path(sdesens.__file__).parent)
print(pathlib.Path(sdesens.models.__file__).parent)
ou = sdesens.models.OrnsteinUhlenbeck(kappa=1.0, mean=0.0, sigma=1.0)
x0 = torch.zeros(1, 1, dtype=torch.float64)
sens = sdesens.sensitivities(ou, x0, [0.0, 0.5], method="euler", dt=0.5, seed=0)
print(sens.dx0[-1].item())
"""
    # Paths of PYTHONPATH come before site-packages, so the libraries go behind by a .pth file;
    # an editable sdesens among them would be behind the one installed here.
    (site / "zz_libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")
    package, models, value = run(python, "-c", program, cwd=tmp_path).split()
    assert Path(package) == site / "sdesens"
    assert Path(models) == site / "sdesens" / "models"
    assert float(value) == 0.5


def test_the_models_of_the_package_are_the_folder_at_the_top():
    link = ROOT / "sdesens" / "models"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "models"


def test_nothing_imports_the_folder_of_models_directly():
    for file in (*(ROOT / "sdesens").rglob("*.py"), *(ROOT / "models").glob("*.py")):
        for line in file.read_text(encoding="utf-8").splitlines():
            assert not line.startswith(("import models", "from models")), (file, line)


def test_the_linter_sees_each_file_once():
    shown = run(sys.executable, "-m", "ruff", "check", "--show-files", ".", cwd=ROOT).split()
    seen = [str(Path(name).relative_to(ROOT)) for name in shown]
    assert "models/heston.py" in seen
    assert "sdesens/pathwise/vjp.py" in seen
    assert not [name for name in seen if name.startswith("sdesens/models/")]
    assert len({str((ROOT / name).resolve()) for name in seen}) == len(seen)
