"""Topologies of every kind, as a hypothesis strategy."""

from hypothesis import strategies as st

from topologies import Topology, cells, complete, coverage, regular, ring, small_world


@st.composite
def shapes(draw: st.DrawFn) -> Topology:
    n = draw(st.integers(8, 40))
    seed = draw(st.integers(0, 99))
    return draw(
        st.sampled_from(
            [
                lambda: complete(n),
                lambda: ring(n, k=draw(st.integers(1, 4))),
                lambda: cells(n, size=draw(st.integers(3, 8)), seed=seed),
                lambda: cells(n, size=4, join="added", bridges=n // 4 + 2, seed=seed),
                lambda: regular(n, draw(st.sampled_from([2, 4, 6])), seed=seed),
                lambda: small_world(n, 4, draw(st.floats(0, 1)), seed=seed),
                lambda: coverage(n, draw(st.integers(1, 4)), abilities=draw(st.integers(1, 5)), seed=seed),
            ]
        )
    )()
