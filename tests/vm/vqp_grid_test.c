/* SPDX-License-Identifier: MIT */
/*
 * The choice of what is tried on real devices (tests/vm/vqp_test.c): every pair of
 * values that can occur does, in few cells.
 */
#include "lib/test.h"

#include <stdbool.h>
#include <sennit/qp.h>

#include "vm/vqp_grid.h"

#define CELLS_MAX 80

struct pair {
	enum grid_column column[2];
	uint64_t value[2];
};

static bool has(const struct grid_cell *cells, unsigned count, const struct pair *pair)
{
	for (unsigned i = 0; i < count; i++)
		if (grid_value(&cells[i], pair->column[0]) == pair->value[0] &&
		    grid_value(&cells[i], pair->column[1]) == pair->value[1])
			return true;
	return false;
}

/* Calls a function for each pair of values of two columns. */
static void for_each_pair(void (*each)(const struct pair *pair))
{
	for (unsigned i = 0; i < GRID_COLUMNS; i++)
		for (unsigned j = i + 1; j < GRID_COLUMNS; j++)
			for (unsigned v = 0; v < grid_columns[i].count; v++)
				for (unsigned w = 0; w < grid_columns[j].count; w++)
					each(&(struct pair){
						{ i, j },
						{ grid_columns[i].value[v],
						  grid_columns[j].value[w] } });
}

static struct grid_cell *all, *chosen;
static unsigned all_count, chosen_count;

static void expect_covered(const struct pair *pair)
{
	if (has(all, all_count, pair) && !has(chosen, chosen_count, pair))
		fail_msg("%s %llu with %s %llu is in no chosen cell",
			 grid_columns[pair->column[0]].name,
			 (unsigned long long)pair->value[0],
			 grid_columns[pair->column[1]].name,
			 (unsigned long long)pair->value[1]);
}

static void every_pair_is_in_a_chosen_cell(void **state)
{
	(void)state;
	assert_in_range(chosen_count, 1, CELLS_MAX);
	for_each_pair(expect_covered);
}

static void chosen_cells_are_legal_and_differ(void **state)
{
	(void)state;
	for (unsigned i = 0; i < chosen_count; i++) {
		assert_true(grid_is_legal(&chosen[i]));
		for (unsigned j = 0; j < i; j++)
			assert_memory_not_equal(&chosen[i], &chosen[j],
						sizeof(chosen[i]));
	}
}

/* What no cell can have, said once more by other words: if the rule of what is legal
 * were too strict, pairs would go missing unseen. */
static bool is_impossible(const struct pair *pair)
{
	uint64_t value[GRID_COLUMNS];
	bool given[GRID_COLUMNS] = { false };

	for (unsigned i = 0; i < 2; i++) {
		value[pair->column[i]] = pair->value[i];
		given[pair->column[i]] = true;
	}
	if (given[GRID_ASKS] && value[GRID_ASKS])
		return (given[GRID_WORK] && value[GRID_WORK] != GRID_WRITE_IMM) ||
		       (given[GRID_LANES] && value[GRID_LANES] == GRID_PASS_THROUGH) ||
		       (given[GRID_SCHEME] && value[GRID_SCHEME] == SNT_SCHEME_DQPLB);
	if (!given[GRID_LENGTH])
		return false;
	if (given[GRID_WORK] && value[GRID_WORK] == GRID_ATOMICS)
		return value[GRID_LENGTH] != 8;
	if (given[GRID_WORK] && value[GRID_WORK] == GRID_SEND)
		return value[GRID_LENGTH] > 1 << 20;
	return given[GRID_LANES] && value[GRID_LANES] == GRID_PASS_THROUGH &&
	       value[GRID_LENGTH] > 1 << 20;
}

static void expect_possible(const struct pair *pair)
{
	assert_int_equal(has(all, all_count, pair), !is_impossible(pair));
}

static void only_what_is_impossible_is_left_out(void **state)
{
	(void)state;
	for_each_pair(expect_possible);
}

/* Of cells that do not take long none is missing, and all pairs are there. */
static void most_cells_are_run_where_time_does_not_matter(void **state)
{
	unsigned count, short_ones = 0, found = 0;
	struct grid_cell *most = grid_most(&count);

	(void)state;
	for (unsigned i = 0; i < all_count; i++)
		short_ones += grid_cost(&all[i]) <= GRID_COST_LONG;
	for (unsigned i = 0; i < count; i++)
		found += grid_cost(&most[i]) <= GRID_COST_LONG;
	assert_int_equal(found, short_ones);
	assert_in_range(count, short_ones + 1, all_count - 1);
	free(chosen);
	chosen = most;
	chosen_count = count;
	for_each_pair(expect_covered);
}

/* The ends of the ranges that are promised. */
static void columns_have_their_ends(void **state)
{
	static const struct {
		enum grid_column column;
		uint64_t least, most;
	} ends[] = {
		{ GRID_WORK, 0, GRID_WORKS - 1 },
		{ GRID_LENGTH, 0, 64 << 20 },
		{ GRID_LANES, 1, GRID_PASS_THROUGH },
		{ GRID_SCHEME, SNT_SCHEME_SPRAY, SNT_SCHEME_DQPLB },
		{ GRID_FRAGMENT, 256, 1 << 20 },
		{ GRID_DEVICES, 1, 3 },
		{ GRID_ASKS, 0, 3 },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(ends); i++) {
		const struct grid_values *column = &grid_columns[ends[i].column];
		bool least = false, most = false;

		for (unsigned j = 0; j < column->count; j++) {
			assert_in_range(column->value[j], ends[i].least, ends[i].most);
			least |= column->value[j] == ends[i].least;
			most |= column->value[j] == ends[i].most;
		}
		assert_true(least && most);
	}
}

static int choose(void **state)
{
	(void)state;
	all = grid_all(&all_count);
	chosen = grid_pairwise(&chosen_count);
	return all && chosen ? 0 : -1;
}

static int forget(void **state)
{
	(void)state;
	free(all);
	free(chosen);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_pair_is_in_a_chosen_cell),
		cmocka_unit_test(chosen_cells_are_legal_and_differ),
		cmocka_unit_test(only_what_is_impossible_is_left_out),
		cmocka_unit_test(columns_have_their_ends),
		cmocka_unit_test(most_cells_are_run_where_time_does_not_matter),
	};

	return cmocka_run_group_tests(tests, choose, forget);
}
