/* SPDX-License-Identifier: MIT */
/* Control messages of `sennit perf`, whole frames: whatever is accepted must go round, and a
 * case that is accepted keeps within the memory that is promised. */
#include <stdlib.h>
#include <string.h>

#include "perf_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static unsigned char again[PERF_HEADER + PERF_BODY_MAX];
	static struct perf_message message;
	uint16_t type;
	int length;

	if (size < PERF_HEADER)
		return 0;
	length = perf_decode_header(data, &type);
	if (length < 0 || (size_t)length != size - PERF_HEADER ||
	    perf_decode(type, data + PERF_HEADER, (size_t)length, &message))
		return 0;
	if (perf_encode(&message, again) != size || memcmp(again, data, size))
		abort();
	if (type == PERF_CASE && !perf_case_check(&message.c) &&
	    perf_case_shape(&message.c).memory > PERF_MEMORY_MAX)
		abort();
	return 0;
}
