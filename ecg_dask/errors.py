"""The one kind of error that a user's input can cause."""


class InputError(ValueError):
    """An input that cannot be used, told in four parts.

    Parameters
    ----------
    what
        The file or the parameter, by name.
    found
        What was found there.
    allowed
        What is allowed there.
    remedy
        What to do about it, an imperative sentence without its full stop.
    """

    def __init__(self, what: str, found: str, allowed: str, remedy: str) -> None:
        super().__init__(what, found, allowed, remedy)

    def __str__(self) -> str:
        what, found, allowed, remedy = self.args
        return f"{what}: found {found}; allowed: {allowed}. {remedy}."
