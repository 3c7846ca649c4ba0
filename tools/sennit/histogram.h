/* SPDX-License-Identifier: MIT */
#ifndef TOOL_HISTOGRAM_H
#define TOOL_HISTOGRAM_H

#include <stdint.h>

/*
 * Counts of 64-bit values, exact up to 255 and within 1/128 of the value above, over
 * the whole range: each power of two is cut into 128 equal buckets. Every value is
 * counted, so that percentiles are exact to a bucket and not estimates from a sample.
 */
#define HISTOGRAM_HALF	  128u
#define HISTOGRAM_BUCKETS (HISTOGRAM_HALF * (64 - 7 + 1))

struct histogram {
	uint64_t count;
	uint64_t min, max; /* exact; without values, UINT64_MAX and 0 */
	double sum;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

void histogram_clear(struct histogram *histogram);
void histogram_record(struct histogram *histogram, uint64_t value);
void histogram_add(struct histogram *histogram, const struct histogram *other);

/* The least value that at least this share of all values does not exceed, to the bucket's
 * width; 0 without values. @share: from 0 to 1. */
uint64_t histogram_at(const struct histogram *histogram, double share);
double histogram_mean(const struct histogram *histogram);

/* The bucket of a value and a bucket's values, for tests and drawings. */
unsigned histogram_bucket_of(uint64_t value);
uint64_t histogram_bucket_last(unsigned bucket);

#endif
