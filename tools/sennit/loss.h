/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TOOL_LOSS_H
#define SENNIT_TOOL_LOSS_H

#include <stdint.h>
#include <sennit/ctx.h>

/* What the soft devices of a context have lost and sent again, all together. */
struct loss {
	uint64_t resends, probes, timeouts, duplicates, out_of_order, drops;
	/* The smallest receive buffer of these devices, and what it should be; 0: there is no soft
	 * device. */
	uint32_t buffer, buffer_wanted;
};

void loss_read(const struct snt_ctx *ctx, struct loss *loss_out);
/* Leaves what has been counted since. */
void loss_subtract(struct loss *loss, const struct loss *before);
void loss_add(struct loss *loss, const struct loss *other);

/* What two ends have counted, if a packet was lost between them; else NULL. */
#define LOSS_NOTE 640
const char *loss_note(const struct loss *client, const struct loss *server,
		      char buffer[LOSS_NOTE]);

/* What to do about a receive buffer that is too small; NULL: it is not. */
#define LOSS_TEXT 320
const char *loss_advice(const struct loss *loss, const char *host,
			char buffer[LOSS_TEXT]);

#endif
