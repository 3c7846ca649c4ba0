/* SPDX-License-Identifier: MIT */
#ifndef VQP_GRID_H
#define VQP_GRID_H

#include <stdbool.h>
#include <stdint.h>

/*
 * What virtual QPs are tried with on real devices: a grid of seven columns, and the
 * cells of it that are chosen so that each pair of values of two columns, if any cell
 * has it, is in one of them. tests/vm/vqp_grid_test.c proves that.
 */

enum grid_work {
	GRID_WRITE,
	GRID_WRITE_IMM,
	GRID_READ,
	GRID_SEND, /* with and without an immediate */
	GRID_ATOMICS,
	GRID_WORKS,
};

enum grid_column {
	GRID_WORK,
	GRID_LENGTH,
	GRID_LANES,
	GRID_SCHEME, /* enum snt_scheme */
	GRID_FRAGMENT,
	GRID_DEVICES, /* as bits */
	GRID_ASKS,    /* bit i: end i wants to be told lengths */
	GRID_COLUMNS,
};

/* In the column of lanes: one lane, with SNT_QP_PASS_THROUGH. */
#define GRID_PASS_THROUGH 1001

#define GRID_VALUES_MAX 8

/* For each column the place of a value in grid_columns. */
struct grid_cell {
	uint8_t at[GRID_COLUMNS];
};

struct grid_values {
	const char *name;
	unsigned count;
	uint64_t value[GRID_VALUES_MAX];
};

extern const struct grid_values grid_columns[GRID_COLUMNS];

static inline uint64_t grid_value(const struct grid_cell *cell, enum grid_column column)
{
	return grid_columns[column].value[cell->at[column]];
}

/* The longest message of rxe, which is what is not cut into fragments. */
#define GRID_MESSAGE_MAX (8 << 20)

/* Can it be done at all? Atomics have 8 bytes; messages fit the port; lengths are
 * told of writes with immediate where they are not known anyway. */
bool grid_is_legal(const struct grid_cell *cell);

/* How many physical WRs it takes, about. */
uint64_t grid_cost(const struct grid_cell *cell);

/*
 * All legal cells, cheap ones first; the pairwise choice; and what is run where time
 * does not matter much: all but those that take long, unless they are on both devices
 * and lengths are not asked for. To be freed; NULL without memory.
 */
struct grid_cell *grid_all(unsigned *count_out);
struct grid_cell *grid_pairwise(unsigned *count_out);
struct grid_cell *grid_most(unsigned *count_out);

/* Cells that cost more take long. */
#define GRID_COST_LONG 100000

#endif
