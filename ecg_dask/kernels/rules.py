"""Constants of the rule that weighs candidates; the same for the CPU and CUDA."""

#: A candidate's neighbours of the first round are those whose energy exceeds this share of the
#: local level: half its root.
STRONG = 0.25

#: Share of the level below which noise does not count, so that a silent baseline has no merit.
QUIET = 1e-3

#: In mean intervals between neighbours: what counts as far enough from the nearest one, and as
#: room enough between the two.
APART, ROOM = 1.5, 2.0

#: Sub-cells from a candidate to the near and far end of its flanks, an eighth to a quarter second.
NEAR_FLANK, FAR_FLANK = 4, 8

#: Sub-cells a cell.
PER_CELL = 8
