/* SPDX-License-Identifier: MIT */
#include "spread.h"

#include <stdlib.h>

static int compare_doubles(const void *one, const void *other)
{
	double a = *(const double *)one, b = *(const double *)other;

	return (a > b) - (a < b);
}

static void sort_doubles(double *values, unsigned count)
{
	qsort(values, count, sizeof(*values), compare_doubles);
}

/* Interpolates between the two closest values. */
static double interpolate_quantile(const double *sorted, unsigned count, double share)
{
	double at = share * (count - 1);
	unsigned below = (unsigned)at;

	if (below + 1 >= count)
		return sorted[count - 1];
	return sorted[below] + (at - below) * (sorted[below + 1] - sorted[below]);
}

struct spread spread_of(double *values, unsigned count)
{
	struct spread spread;

	sort_doubles(values, count);
	spread.median = interpolate_quantile(values, count, 0.5);
	spread.min = values[0];
	spread.max = values[count - 1];
	spread.low = interpolate_quantile(values, count, 0.25);
	spread.high = interpolate_quantile(values, count, 0.75);
	for (unsigned i = 0; i < count; i++)
		values[i] = values[i] < spread.median ? spread.median - values[i]
						      : values[i] - spread.median;
	sort_doubles(values, count);
	spread.deviation = interpolate_quantile(values, count, 0.5);
	return spread;
}
