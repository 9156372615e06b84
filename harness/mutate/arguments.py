"""Why some mutants need not be killed: the files of `argued`, each of a group of targets.

An entry names its place by the text of its line; one whose place is not there any more, or that is no longer true, is
an error, so that none goes stale unseen.
"""

from collections.abc import Sequence
from importlib.resources import files

import msgspec

from harness.errors import UsageError
from harness.mutate.mutant import Mutant


class Argument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be said of a mutant: of `function`, by `operator`, in the statement `line`, on one line.

    `change` says which one, where the line has several, and `becomes`, a part of the mutated text on one line, where it
    has several with the same change.
    """

    function: str
    operator: str
    line: str
    why: str
    change: str = ""
    becomes: str = ""

    def means(self, mutant: Mutant) -> bool:
        """Whether it is this one."""
        place = (mutant.target.function, mutant.operator, mutant.line)
        if place != (self.function, self.operator, self.line) or self.change not in ("", mutant.change):
            return False
        return not self.becomes or self.becomes in " ".join(mutant.text.split())


class Beyond(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Code of `function` that no scenario drives: below the head `within` (after `else: `, the alternative to it).

    Where `within` is empty it is the whole function that nothing drives.
    """

    function: str
    within: str
    why: str

    def means(self, mutant: Mutant) -> bool:
        """Whether the mutant stands there."""
        return self.function == mutant.target.function and self.within in ("", *mutant.within)


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All entries; they were written for the source of `release`, and hold elsewhere as far as the text is the same.

    An `equivalent` mutant does the same; one that is `alive` does not, and the entry says why nothing catches it yet.
    """

    release: str
    equivalent: tuple[Argument, ...] = ()
    alive: tuple[Argument, ...] = ()
    beyond: tuple[Beyond, ...] = ()

    def equivalence(self, mutant: Mutant) -> Argument | None:
        """The first entry by which `mutant` does the same."""
        return next((entry for entry in self.equivalent if entry.means(mutant)), None)

    def survival(self, mutant: Mutant) -> Argument | None:
        """The first entry that says why `mutant` is not caught yet."""
        return next((entry for entry in self.alive if entry.means(mutant)), None)

    def outside(self, mutant: Mutant) -> Beyond | None:
        """The first entry that says why no scenario gets to `mutant`."""
        return next((entry for entry in self.beyond if entry.means(mutant)), None)

    def require_fresh(self, release: str, every: Sequence[Mutant]) -> None:
        """Raises UsageError for an entry about a function of `every` that means none of them, in its own release."""
        if release != self.release:
            return
        functions = {mutant.target.function for mutant in every}
        for entry in (*self.equivalent, *self.alive):
            if entry.function in functions and not any(map(entry.means, every)):
                change = f" that turns {entry.change}" if entry.change else ""
                raise UsageError(
                    f"harness/mutate/argued is stale: {entry.function} of {release} has no mutant {entry.operator} in "
                    f"the line {entry.line!r}{change}: delete the entry."
                )
        for outside in self.beyond:
            if outside.function in functions and not any(map(outside.means, every)):
                raise UsageError(
                    f"harness/mutate/argued is stale: {outside.function} of {release} has nothing to mutate below "
                    f"{outside.within!r}: delete the entry."
                )


def arguments() -> Arguments:
    """The entries of all files."""
    folder = files("harness.mutate").joinpath("argued")
    named = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    read = [msgspec.json.decode(file.read_bytes(), type=Arguments) for file in named]
    return Arguments(
        read[0].release,
        tuple(entry for one in read for entry in one.equivalent),
        tuple(entry for one in read for entry in one.alive),
        tuple(entry for one in read for entry in one.beyond),
    )
