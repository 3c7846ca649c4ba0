/* SPDX-License-Identifier: MIT */
#ifndef TOOL_SPREAD_H
#define TOOL_SPREAD_H

/* Statistics over repeated runs of one measurement. */
struct spread {
	double median, min, max;
	double low, high; /* the quartiles */
	double deviation; /* the median distance from the median */
};

/* Sorts the values; @count is not 0. */
struct spread spread_of(double *values, unsigned count);

#endif
