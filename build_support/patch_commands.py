"""The command line of scripts/patches. Each command prints what it did; a BuildError ends it with one message."""

from __future__ import annotations

from pathlib import Path

import click

from build_support import bump as bumping
from build_support import check as checking
from build_support.build_error import BuildError
from build_support.export import export as export_commits
from build_support.git import git_output
from build_support.layout import of_this_clone
from build_support.patch_builds import check_builds
from build_support.pin import read_pin
from build_support.series import read_series
from build_support.tree import ensure_tree, move_tree
from build_support.variants import files_for, write_variants


class Failing(click.Group):
    """Shows a BuildError as click shows its own errors."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BuildError as failure:
            raise click.ClickException(str(failure)) from None


@click.group(cls=Failing)
def main() -> None:
    """The patch series for llama.cpp: see patches/README.md."""


@main.command()
@click.option("--discard", is_flag=True, help="Throw away edits and commits in the tree that are not in patches/.")
def apply(discard: bool) -> None:
    """Fetch the pinned source if it is not there, and apply the series."""
    tree = ensure_tree(of_this_clone(), click.echo, discard=discard)
    click.echo(f"{tree} is at {git_output(tree, 'rev-parse', '--short', 'HEAD')}, series applied")


@main.command()
def export() -> None:
    """Write the tree's commits into patches/."""
    layout = of_this_clone()
    names = export_commits(layout)
    # Back onto the commits that `git am` gives, so that the tree is the one that everybody has.
    move_tree(layout, read_pin(layout.pin_file), lambda _line: None)
    click.echo(f"{len(names)} patches written")


@main.command()
@click.option("--build", is_flag=True, help="Also build after each patch and run the tests that it brought (minutes).")
@click.option("--first", type=int, help="With --build: only the first so many patches.")
@click.option("--lint-only", is_flag=True, help="Judge the files only; needs no tree.")
def check(build: bool, first: int | None, lint_only: bool) -> None:
    """Judge the series and its churn, apply it and each group on its base, and build and test each patch on request."""
    layout = of_this_clone()
    checking.check_lint(layout)
    if not lint_only:
        head = checking.check_applies(layout, click.echo)
        checking.check_groups(layout, click.echo)
        checking.check_churn(layout, head, click.echo)
    if build:
        check_builds(layout, click.echo, first)
    click.echo(f"patches: {len(read_series(layout.patches))} ok")


@main.command()
@click.argument("version")
@click.option("--commit", default="unknown", help="The upstream commit of that version.")
@click.option("--tree", type=click.Path(path_type=Path), help="Make the tree in this new folder and keep it.")
@click.option("--build", is_flag=True, help="Also build it and run the tests of the patches (minutes).")
@click.option("--write", is_flag=True, help="Write the new pin.")
def bump(version: str, commit: str, tree: Path | None, build: bool, write: bool) -> None:
    """Try the series on another VERSION of the package and show what moved."""
    layout = of_this_clone()
    pin, difference = bumping.bump(layout, version, commit, click.echo, keep=tree, build=build)
    click.echo(difference or "no patch changed")
    click.echo(pin.to_json(), nl=False)
    n_taken, n_patches = len(files_for(layout.patches, version)), len(read_series(layout.patches))
    if n_taken < n_patches:
        click.echo(f"{version} takes the first {n_taken} of {n_patches} patches")
    if write:
        if n_taken < n_patches:
            raise BuildError(f"{version} cannot be the pin: it does not take all patches", "rebase the others for it")
        layout.pin_file.write_text(pin.to_json(), encoding="ascii")


@main.command()
@click.argument("version")
@click.option("--tree", type=click.Path(path_type=Path, exists=True), required=True, help="What `bump --tree` made.")
def variants(version: str, tree: Path) -> None:
    """Write the patches that were rebased for VERSION in a tree of it."""
    rebased = write_variants(tree, of_this_clone().patches, version)
    click.echo(f"{len(rebased)} rebased patches written: {', '.join(rebased)}")
