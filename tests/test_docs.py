"""The site: it builds offline without a warning, its links lead somewhere, its examples run."""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import torch
from filelock import FileLock

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = ("index", "scaling", "from_torchsde", "from_diffrax", "from_quantlib")
PEERS = ("diffrax", "QuantLib")  # not installed here; what is written in them is run where they are
PUBLIC = (
    "sdesens",
    "sdesens.autodiff",
    "sdesens.models",
    "sdesens.montecarlo",
    "sdesens.plots",
    "sdesens.pricing",
    "sdesens.pricing.formulas",
)


# --- what is built ------------------------------------------------------------------------------


@dataclass
class Page(HTMLParser):
    """A page as it was built: what it can be linked at, links to, loads, and says as text."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._verbatim = 0
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self._verbatim += tag in ("pre", "code", "script", "style", "math")
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link":
            self.loads.append(values["href"])
        else:
            self.loads += [values[name] for name in ("src", "srcset", "data") if name in values]
        self.loads += re.findall(r"url\(\s*['\"]?([^'\")]+)", values.get("style", ""))

    def handle_endtag(self, tag: str) -> None:
        self._verbatim -= tag in ("pre", "code", "script", "style", "math")

    def handle_data(self, data: str) -> None:
        if not self._verbatim:
            self.text.append(data)


@dataclass
class Site:
    """The built site, and what the build said."""

    folder: Path
    messages: str

    @cached_property
    def pages(self) -> dict[Path, Page]:
        return {path: Page(path) for path in sorted(self.folder.rglob("*.html"))}

    @cached_property
    def anchors(self) -> set[str]:
        return {anchor for page in self.pages.values() for anchor in page.anchors}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Site:
    """Built once for all workers, in the folder that they share."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    folder, said = shared / "site", shared / "site.json"
    with FileLock(shared / "site.lock"):
        if not said.exists():
            command = [sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q"]
            command += ["-d", str(shared / "doctrees"), str(DOCS), str(folder)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            said.write_text(json.dumps([done.returncode, done.stdout + done.stderr]))
    code, messages = json.loads(said.read_text())
    assert code == 0, messages
    return Site(folder, messages)


def test_the_site_is_built_without_a_warning(site):
    assert not site.messages
    assert {"index.html", "comparison.html", "greeks.html"} <= {p.name for p in site.pages}


def test_every_internal_link_leads_to_a_page_and_a_place_on_it(site):
    broken, count = [], 0
    for path, page in site.pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append((path.name, link))
            elif parts.fragment and target in site.pages:
                is_there = unquote(parts.fragment) in site.pages[target].anchors
                broken += [] if is_there else [(path.name, link)]
    assert count > 1000
    assert not broken


def test_no_page_loads_anything_from_elsewhere(site):
    wanted = {(p.name, url) for p, page in site.pages.items() for url in page.loads}
    assert len(wanted) > 100
    assert not {(name, url) for name, url in wanted if re.match(r"(\w+:)?//", url)}
    for sheet in site.folder.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text), sheet
    missing = {
        (path.name, url)
        for path, page in site.pages.items()
        for url in page.loads
        if not url.startswith("data:") and not (path.parent / unquote(urlsplit(url).path)).exists()
    }
    assert not missing


def test_no_page_shows_raw_markup(site):
    marks = re.compile(r":(class|func|meth|mod|attr|math|doc):|``|```|\{\w+\}`|\$\$|\]\(|^\s*\.\. ")
    for path, page in site.pages.items():
        shown = [text for text in page.text if marks.search(text)]
        assert not shown, path


def test_formulas_are_mathml(site):
    heston = (site.folder / "api" / "models.html").read_text(encoding="utf-8")
    assert heston.count("<math ") >= 4
    assert "\\sqrt" not in heston


def test_every_public_name_is_in_the_reference(site):
    modules = [importlib.import_module(n) for n in PUBLIC if importlib.util.find_spec(n)]
    documented: dict[int, str] = {}
    names: list[tuple[str, Any]] = []
    for module in modules:
        for name, value in vars(module).items():
            if name.startswith("_") or isinstance(value, ModuleType) or not callable(value):
                continue
            names.append((f"{module.__name__}.{name}", value))
            if names[-1][0] in site.anchors:
                documented[id(value)] = names[-1][0]
    assert len(names) > 100
    assert not [name for name, value in names if id(value) not in documented]


# --- what is written ------------------------------------------------------------------------------


def pages() -> list[Path]:
    """What is read on its own, as well as on the site."""
    top = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [*top, *sorted(DOCS.glob("*.md"))]


def slugs(page: Path) -> set[str]:
    """The places of a page of Markdown that a link can name."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    titles = re.findall(r"^#+ (.+)$", prose, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_relative_link_of_a_page_leads_somewhere(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", prose)):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = page.parent / parts.path if parts.path else page
        assert target.exists(), link
        if parts.fragment:
            assert parts.fragment in slugs(target), link


def test_every_footnote_is_defined_and_used():
    for page in pages():
        text = page.read_text(encoding="utf-8")
        defined = re.findall(r"^\[\^([\w-]+)\]:", text, flags=re.M)
        used = re.findall(r"\[\^([\w-]+)\](?!:)", text)
        assert sorted(defined) == sorted(set(used)), page.name


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_page_run(name, capsys):
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    ours: dict[str, Any] = {"__name__": name}
    theirs: dict[str, Any] = {"__name__": f"{name}_theirs"}
    for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.S | re.M):
        peer = next((p for p in PEERS if f"import {p}" in block), None)
        if peer is None:
            exec(block, ours)
        elif importlib.util.find_spec(peer):
            exec(block, theirs)
    assert ours["sdesens" if name != "scaling" else "montecarlo"]
    check = CHECKS.get(name)
    if check:
        check(ours)


def check_index(shown: dict[str, Any]) -> None:
    assert shown["sens"].dx0.shape == (101, 1, 1, 1)
    assert shown["sens"].dparams["kappa"].shape == (101, 1, 1)
    delta = shown["greeks"].delta
    assert abs(delta.value - 0.018762) < 4 * delta.stderr < 0.001
    assert shown["greeks"].estimators["spot",] == "bismut"


def check_diffrax(shown: dict[str, Any]) -> None:
    exact = 0.99 ** torch.arange(101, dtype=torch.float64)
    torch.testing.assert_close(shown["sens"].dx0[:, 0, 0, 0], exact, rtol=0, atol=1e-13)
    assert shown["sens"].x.shape == (101, 1, 1)


def check_quantlib(shown: dict[str, Any]) -> None:
    price, vega = shown["report"]["price"], shown["report"]["variance"]
    assert (round(price.value, 3), round(price.stderr, 3)) == (6.616, 0.015)
    assert (round(vega.value, 1), round(vega.stderr, 1)) == (53.2, 0.2)
    low, high = shown["report"].interval("variance")
    assert low < 53.0023 < high


CHECKS = {"index": check_index, "from_diffrax": check_diffrax, "from_quantlib": check_quantlib}


# --- the house ------------------------------------------------------------------------------------


def layers() -> dict[str, int]:
    """The layer of each room, from the table of the page."""
    text = (DOCS / "how_it_works.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", text, flags=re.M)
    return {
        room.strip("/").removesuffix(".py"): int(layer)
        for layer, rooms in rows
        for room in re.findall(r"`([^`]+)`", rooms)
    }


def imports_of(file: Path) -> set[str]:
    """The rooms that a file imports from."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "sdesens":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sdesens."):
            found.add(str(node.module).split(".")[1])
    return found - {"__version__"}


def test_imports_point_downwards_as_the_page_says():
    layer = layers()
    seen = set()
    for file in (ROOT / "sdesens").rglob("*.py"):
        room = file.relative_to(ROOT / "sdesens").parts[0].removesuffix(".py")
        seen.add(room)
        assert room in layer, f"add {room} to the table of docs/how_it_works.md"
        for other in imports_of(file):
            assert layer[other] <= layer[room], (file, other)
    for file in (ROOT / "models").glob("*.py"):
        assert all(layer[other] <= layer["models"] for other in imports_of(file)), file
    assert set(layer) - seen <= {"models", "plots"}


# --- how it is built ------------------------------------------------------------------------------


def extension(name: str) -> ModuleType:
    """A module of ``docs/_ext``."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (r"\frac12 \tanh x", ["<mn>1</mn>", "<mn>2</mn>", "<mi>tanh</mi>"]),
        (r"d⟨W⟩ = ρ dt, T → ∞", ["<mo", "⟨", "ρ", "∞"]),
        (r"\begin{align} a &= b \\ c &= d \end{align}", ["<mtable", "<mtr>"]),
        (r"v = (1, \dots, 1) \iff \bm{v} \stackrel{d}{=} w", ["…", "⟺", "<mover>"]),
    ],
)
def test_a_formula_is_what_tex_makes_of_it(source, parts):
    made = extension("mathml").mathml(source, block=True)
    assert all(part in made for part in parts)


def test_notebooks_are_copied_with_links_that_hold_on_the_site(tmp_path):
    notebooks = extension("notebooks")
    source, copies = tmp_path / "notebooks", tmp_path / "tutorials"
    notebooks.copy(source, copies)
    assert notebooks.toctree(copies) == "There are no notebooks in this checkout."
    source.mkdir()
    text = "[a](../docs/greeks.md) [b](02_next.ipynb) [c](../models/heston.py)"
    document = {
        "cells": [{"cell_type": "markdown", "metadata": {}, "source": [text]}],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (source / "01_first.ipynb").write_text(json.dumps(document))
    notebooks.copy(source, copies)
    copied = json.loads((copies / "01_first.ipynb").read_text())
    assert copied["cells"][0]["source"] == "[a](../greeks.md) [b](02_next.ipynb) c"
    assert "tutorials/01_first" in notebooks.toctree(copies)
    (source / "01_first.ipynb").unlink()
    notebooks.copy(source, copies)
    assert not list(copies.iterdir())
