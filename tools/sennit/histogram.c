/* SPDX-License-Identifier: MIT */
#include "histogram.h"

#include <string.h>

/* A value's bucket: the 8 bits that follow its leading zeros, the first of them set except
 * below 128, behind those of all lower powers of two. */
unsigned histogram_bucket_of(uint64_t value)
{
	unsigned shift;

	if (value < 2 * HISTOGRAM_HALF)
		return (unsigned)value;
	shift = 56 - (unsigned)__builtin_clzll(value);
	return shift * HISTOGRAM_HALF + (unsigned)(value >> shift);
}

uint64_t histogram_bucket_last(unsigned bucket)
{
	unsigned shift;
	uint64_t first;

	if (bucket < 2 * HISTOGRAM_HALF)
		return bucket;
	shift = bucket / HISTOGRAM_HALF - 1;
	first = (uint64_t)(bucket % HISTOGRAM_HALF + HISTOGRAM_HALF) << shift;
	return first + ((UINT64_C(1) << shift) - 1);
}

void histogram_clear(struct histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
	histogram->min = UINT64_MAX;
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
	histogram->count++;
	histogram->sum += (double)value;
	if (value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
	histogram->bucket[histogram_bucket_of(value)]++;
}

void histogram_add(struct histogram *histogram, const struct histogram *other)
{
	histogram->count += other->count;
	histogram->sum += other->sum;
	if (other->min < histogram->min)
		histogram->min = other->min;
	if (other->max > histogram->max)
		histogram->max = other->max;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		histogram->bucket[i] += other->bucket[i];
}

uint64_t histogram_at(const struct histogram *histogram, double share)
{
	double wanted = share * (double)histogram->count;
	uint64_t seen = 0;

	if (!histogram->count)
		return 0;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		seen += histogram->bucket[i];
		if (seen && (double)seen >= wanted) {
			uint64_t last = histogram_bucket_last(i);

			/* The exact maximum is better than the bucket's edge. */
			return last < histogram->max ? last : histogram->max;
		}
	}
	return histogram->max;
}

double histogram_mean(const struct histogram *histogram)
{
	return histogram->count ? histogram->sum / (double)histogram->count : 0;
}
