/* SPDX-License-Identifier: MIT */
#include "vqp_grid.h"

#include <stdlib.h>
#include <string.h>
#include <sennit/qp.h>

const struct grid_values grid_columns[GRID_COLUMNS] = {
	[GRID_WORK] = { "work",
			5,
			{ GRID_WRITE, GRID_WRITE_IMM, GRID_READ, GRID_SEND,
			  GRID_ATOMICS } },
	[GRID_LENGTH] = { "bytes", 7, { 0, 1, 8, 4097, 65536, 1 << 20, 64 << 20 } },
	[GRID_LANES] = { "lanes", 5, { GRID_PASS_THROUGH, 1, 2, 5, 16 } },
	[GRID_SCHEME] = { "scheme", 2, { SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB } },
	[GRID_FRAGMENT] = { "fragments of", 4, { 256, 4096, 65536, 1 << 20 } },
	[GRID_DEVICES] = { "devices", 3, { 1, 2, 3 } },
	[GRID_ASKS] = { "lengths wanted by", 4, { 0, 1, 2, 3 } },
};

bool grid_is_legal(const struct grid_cell *cell)
{
	uint64_t work = grid_value(cell, GRID_WORK);
	uint64_t length = grid_value(cell, GRID_LENGTH);
	bool single = grid_value(cell, GRID_LANES) == GRID_PASS_THROUGH;
	bool whole = work == GRID_SEND || single;
	bool unknown = work == GRID_WRITE_IMM && !single &&
		       grid_value(cell, GRID_SCHEME) == SNT_SCHEME_SPRAY;

	if (grid_value(cell, GRID_ASKS) && !unknown)
		return false;
	if (work == GRID_ATOMICS)
		return length == 8;
	return !whole || length <= GRID_MESSAGE_MAX;
}

uint64_t grid_cost(const struct grid_cell *cell)
{
	uint64_t length = grid_value(cell, GRID_LENGTH);
	uint64_t packets = length / 4096;
	uint64_t fragments = length / grid_value(cell, GRID_FRAGMENT);
	uint64_t lanes = grid_value(cell, GRID_LANES);

	return (packets > fragments ? packets : fragments) +
	       (lanes == GRID_PASS_THROUGH ? 1 : lanes);
}

static int compare_cost(const void *a, const void *b)
{
	uint64_t cost_a = grid_cost(a), cost_b = grid_cost(b);

	if (cost_a != cost_b)
		return cost_a < cost_b ? -1 : 1;
	return memcmp(a, b, sizeof(struct grid_cell));
}

/* Counts like an odometer; false after the last. */
static bool advance(struct grid_cell *cell)
{
	for (unsigned i = 0; i < GRID_COLUMNS; i++) {
		if (++cell->at[i] < grid_columns[i].count)
			return true;
		cell->at[i] = 0;
	}
	return false;
}

struct grid_cell *grid_all(unsigned *count_out)
{
	struct grid_cell cell = { { 0 } }, *cells;
	unsigned most = 1, count = 0;

	for (unsigned i = 0; i < GRID_COLUMNS; i++)
		most *= grid_columns[i].count;
	cells = calloc(most, sizeof(*cells));
	if (!cells)
		return NULL;
	do
		if (grid_is_legal(&cell))
			cells[count++] = cell;
	while (advance(&cell));
	qsort(cells, count, sizeof(*cells), compare_cost);
	*count_out = count;
	return cells;
}

/* Which pairs are in a cell that was chosen already, and how often is a value? */
struct cover {
	bool pair[GRID_COLUMNS][GRID_COLUMNS][GRID_VALUES_MAX][GRID_VALUES_MAX];
	unsigned uses[GRID_COLUMNS][GRID_VALUES_MAX];
};

/* Pairs that a cell would add, and then: are its values rare so far? */
static unsigned worth(const struct cover *cover, const struct grid_cell *cell)
{
	unsigned news = 0, uses = 0;

	for (unsigned i = 0; i < GRID_COLUMNS; i++) {
		uses += cover->uses[i][cell->at[i]];
		for (unsigned j = i + 1; j < GRID_COLUMNS; j++)
			news += !cover->pair[i][j][cell->at[i]][cell->at[j]];
	}
	return news ? news * 1000 + (uses < 999 ? 999 - uses : 0) : 0;
}

static void use(struct cover *cover, const struct grid_cell *cell)
{
	for (unsigned i = 0; i < GRID_COLUMNS; i++) {
		cover->uses[i][cell->at[i]]++;
		for (unsigned j = i + 1; j < GRID_COLUMNS; j++)
			cover->pair[i][j][cell->at[i]][cell->at[j]] = true;
	}
}

/* Again and again the cell that is worth most; of these the cheapest. */
struct grid_cell *grid_pairwise(unsigned *count_out)
{
	unsigned count, chosen = 0;
	struct grid_cell *cells = grid_all(&count);
	struct cover cover = { 0 };

	while (cells) {
		unsigned best = 0, most = 0;
		struct grid_cell cell;

		for (unsigned i = chosen; i < count; i++) {
			unsigned here = worth(&cover, &cells[i]);

			if (here > most) {
				most = here;
				best = i;
			}
		}
		if (!most)
			break;
		cell = cells[best];
		use(&cover, &cell);
		/* To the front, and the rest stays in order of cost. */
		memmove(&cells[chosen + 1], &cells[chosen],
			(best - chosen) * sizeof(cell));
		cells[chosen++] = cell;
	}
	*count_out = chosen;
	return cells;
}

struct grid_cell *grid_most(unsigned *count_out)
{
	unsigned count, kept = 0;
	struct grid_cell *cells = grid_all(&count);

	for (unsigned i = 0; cells && i < count; i++)
		if (grid_cost(&cells[i]) <= GRID_COST_LONG ||
		    (grid_value(&cells[i], GRID_DEVICES) == 3 &&
		     !grid_value(&cells[i], GRID_ASKS)))
			cells[kept++] = cells[i];
	*count_out = kept;
	return cells;
}
