/* SPDX-License-Identifier: MIT */
#include "dev/soft/mad.h"

#include <errno.h>

#include "dev/soft/core.h"

#define OUT_SIZE (2 * SNT__SOFT_OUTPUT_MAX)

int snt__soft_mads_init(struct snt__soft_mads *mads)
{
	mads->out = snt__soft_alloc(OUT_SIZE, sizeof(*mads->out));
	return mads->out ? 0 : -ENOMEM;
}

void snt__soft_mads_finish(struct snt__soft_mads *mads)
{
	snt__soft_free(mads->out);
}

void snt__soft_device_set_agent(struct snt__soft_device *device,
				const struct snt__soft_agent *agent, void *arg)
{
	device->mads.agent = agent;
	device->mads.arg = arg;
}

void snt__soft_mad_input(struct snt__soft_device *device,
			 const struct snt__soft_path *path,
			 const struct snt__wire_packet *packet, uint64_t now)
{
	struct snt__soft_mads *mads = &device->mads;

	if (!mads->agent || packet->opcode != SNT__WIRE_UD_SEND_ONLY ||
	    packet->datagram.qkey != SNT__WIRE_GSI_QKEY ||
	    packet->payload_length != SNT__SOFT_MAD_SIZE) {
		device->stats.dropped++;
		return;
	}
	mads->agent->input(mads->arg, path, packet->payload, now);
}

static void seal_mad(struct snt__soft_mads *mads, struct snt__soft_mad *mad,
		     struct snt__soft_packet *packet)
{
	struct snt__wire_packet wire = {
		.opcode = SNT__WIRE_UD_SEND_ONLY,
		.flags = SNT__WIRE_MIGRATED,
		.pkey = SNT__WIRE_PKEY_DEFAULT,
		.qpn = SNT__WIRE_GSI_QPN,
		.psn = mads->psn++ & SNT__PSN_MASK,
		.datagram = { .qkey = SNT__WIRE_GSI_QKEY,
			      .source_qpn = SNT__WIRE_GSI_QPN },
		.payload_length = sizeof(mad->bytes),
	};

	packet->path = &mad->path;
	packet->header_length = snt__wire_encode(&wire, packet->header);
	packet->payload[0].iov_base = mad->bytes;
	packet->payload[0].iov_len = sizeof(mad->bytes);
	packet->payload_count = 1;
	packet->payload_length = sizeof(mad->bytes);
}

unsigned snt__soft_mad_output(struct snt__soft_device *device,
			      struct snt__soft_packet *packets, unsigned max,
			      uint64_t now)
{
	struct snt__soft_mads *mads = &device->mads;
	unsigned count;

	if (!mads->agent)
		return 0;
	for (count = 0; count < max; count++) {
		struct snt__soft_mad *mad = &mads->out[mads->next % OUT_SIZE];

		if (!mads->agent->output(mads->arg, &mad->path, mad->bytes, now))
			break;
		mads->next++;
		if (!mad->path.source_port)
			mad->path.source_port =
				0xc000 | (snt__soft_random(device) & 0x3fff);
		seal_mad(mads, mad, &packets[count]);
	}
	return count;
}
