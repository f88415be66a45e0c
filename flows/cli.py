"""placeholder."""


def app() -> None: ...
