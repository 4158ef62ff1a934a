"""The command line of scripts/patches. Each command prints what it did; a BuildError ends it with one message."""

from __future__ import annotations

import click

from build_support import bump as bumping
from build_support import check as checking
from build_support.build_error import BuildError
from build_support.export import export as export_commits
from build_support.git import git_output
from build_support.layout import of_this_clone
from build_support.pin import read_pin
from build_support.series import read_series
from build_support.tree import ensure_tree, move_tree


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
@click.option("--build", is_flag=True, help="Also build after each patch (minutes).")
@click.option("--lint-only", is_flag=True, help="Judge the files only; needs no tree.")
def check(build: bool, lint_only: bool) -> None:
    """Judge the series, apply it on the pinned base, and build each patch on request."""
    layout = of_this_clone()
    checking.check_lint(layout)
    if not lint_only:
        checking.check_applies(layout, click.echo)
    if build:
        checking.check_builds(layout, click.echo)
    click.echo(f"patches: {len(read_series(layout.patches))} ok")


@main.command()
@click.argument("version")
@click.option("--commit", default="unknown", help="The upstream commit of that version.")
@click.option("--write", is_flag=True, help="Write the new pin.")
def bump(version: str, commit: str, write: bool) -> None:
    """Try the series on another VERSION of the package and show what moved."""
    layout = of_this_clone()
    pin, difference = bumping.bump(layout, version, commit, click.echo)
    click.echo(difference or "no patch changed")
    click.echo(pin.to_json(), nl=False)
    if write:
        layout.pin_file.write_text(pin.to_json(), encoding="ascii")
