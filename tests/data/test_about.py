from msbench.data.about import About


def test_it_is_said_in_lines_that_are_aligned() -> None:
    about = About("two files,\none and two", "CC0", "here, then: msbench setup")
    assert str(about).splitlines() == [
        "  what:    two files,",
        "           one and two",
        "  licence: CC0",
        "  where:   here, then: msbench setup",
    ]
