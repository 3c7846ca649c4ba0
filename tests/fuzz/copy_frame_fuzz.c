/* SPDX-License-Identifier: MIT */
/* Frames of `sennit cp` from a hostile peer: whatever is accepted must go round, and a path
 * that is sound has no way out. */
#include <stdlib.h>
#include <string.h>

#include "copy_frame.h"
#include "copy_path.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t again[COPY_HEADER + COPY_CONTROL_MAX];
	static struct copy_frame frame;

	if (copy_frame_unpack(data, size, &frame) || frame.type == COPY_DATA)
		return 0;
	if (copy_frame_pack(&frame, again, sizeof(again)) != (ssize_t)size ||
	    memcmp(again, data, size))
		abort();
	if (frame.type == COPY_FILE && !copy_path_check(frame.text) &&
	    (frame.text[0] == '/' || strstr(frame.text, "/../") ||
	     !strncmp(frame.text, "../", 3) || !strcmp(frame.text, "..")))
		abort();
	return 0;
}
