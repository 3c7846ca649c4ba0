/* SPDX-License-Identifier: MIT */
#include "loss.h"

#include <stdbool.h>
#include <stdio.h>
#include <sennit/device.h>

static void add_device_stats(struct loss *loss, const struct snt_device_stats *stats)
{
	loss->resends += stats->resends;
	loss->probes += stats->probes;
	loss->timeouts += stats->timeouts;
	loss->duplicates += stats->duplicates;
	loss->out_of_order += stats->out_of_order;
	loss->drops += stats->drops;
	if (!loss->buffer || stats->receive_buffer < loss->buffer)
		loss->buffer = stats->receive_buffer;
	loss->buffer_wanted = stats->receive_buffer_wanted;
}

void loss_read(const struct snt_ctx *ctx, struct loss *loss_out)
{
	*loss_out = (struct loss){ 0 };
	for (unsigned i = 0; i < snt_ctx_device_count(ctx); i++) {
		struct snt_device_stats stats = { .size = sizeof(stats) };

		if (!snt_device_query_stats(snt_ctx_device(ctx, i), &stats))
			add_device_stats(loss_out, &stats);
	}
}

void loss_subtract(struct loss *loss, const struct loss *before)
{
	loss->resends -= before->resends;
	loss->probes -= before->probes;
	loss->timeouts -= before->timeouts;
	loss->duplicates -= before->duplicates;
	loss->out_of_order -= before->out_of_order;
	loss->drops -= before->drops;
}

void loss_add(struct loss *loss, const struct loss *other)
{
	loss->resends += other->resends;
	loss->probes += other->probes;
	loss->timeouts += other->timeouts;
	loss->duplicates += other->duplicates;
	loss->out_of_order += other->out_of_order;
	loss->drops += other->drops;
	loss->buffer = other->buffer;
	loss->buffer_wanted = other->buffer_wanted;
}

/* What came twice had not been lost: the peer was slow. */
static bool is_lossless(const struct loss *from, const struct loss *to)
{
	return from->resends <= to->duplicates && !to->out_of_order && !to->drops;
}

static int say_loss(char *buffer, size_t size, const char *end, const struct loss *loss)
{
	char probes[64] = "";

	if (loss->probes)
		snprintf(probes, sizeof(probes),
			 ", %llu of them as probes of a silent peer,",
			 (unsigned long long)loss->probes);
	return snprintf(buffer, size,
			"%s sent %llu packets again%s and waited %llu times, its "
			"sockets dropped %llu, %llu came out of order and %llu twice",
			end, (unsigned long long)loss->resends, probes,
			(unsigned long long)loss->timeouts,
			(unsigned long long)loss->drops,
			(unsigned long long)loss->out_of_order,
			(unsigned long long)loss->duplicates);
}

const char *loss_note(const struct loss *client, const struct loss *server,
		      char buffer[LOSS_NOTE])
{
	int length;

	if (is_lossless(client, server) && is_lossless(server, client))
		return NULL;
	length = say_loss(buffer, LOSS_NOTE, "loss: the client", client);
	say_loss(buffer + length, LOSS_NOTE - (size_t)length, "; the server", server);
	return buffer;
}

const char *loss_advice(const struct loss *loss, const char *host,
			char buffer[LOSS_TEXT])
{
	if (loss->buffer >= loss->buffer_wanted)
		return NULL;
	snprintf(
		buffer, LOSS_TEXT,
		"%s: the kernel grants soft devices receive buffers of %u KiB only, so that "
		"packets may be dropped; as root there: sysctl -w net.core.rmem_max=%u",
		host, loss->buffer >> 10, loss->buffer_wanted);
	return buffer;
}
