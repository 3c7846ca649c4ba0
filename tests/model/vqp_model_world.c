/* SPDX-License-Identifier: MIT */
#include "vqp_model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ACCESS                                                                       \
	(SNT_ACCESS_LOCAL_WRITE | SNT_ACCESS_REMOTE_WRITE | SNT_ACCESS_REMOTE_READ | \
	 SNT_ACCESS_REMOTE_ATOMIC)

int wrong(const struct world *world, const char *format, ...)
{
	const struct end *end = world->end;
	va_list args;

	printf("# seed %llu (%s, lanes %u, devices %u/%u, depths lane %u/%u send %u/%u "
	       "recv %u/%u, %s): ",
	       (unsigned long long)world->seed,
	       world->scheme == SNT_SPRAY ? "SPRAY" : "DQPLB", end->opts.lanes,
	       end[0].devices, end[1].devices, end[0].opts.lane_depth,
	       end[1].opts.lane_depth, end[0].opts.send_depth, end[1].opts.send_depth,
	       end[0].opts.recv_depth, end[1].opts.recv_depth,
	       world->faulty ? "with faults" : "no faults");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	return -1;
}

/* The library's own dice must not make replays differ. */
static int even_random(void *arg, void *buffer, size_t size)
{
	(void)arg;
	memset(buffer, 7, size);
	return 0;
}

static void fill_memory(struct end *end, unsigned index)
{
	memset(end->memory, EMPTY, MEMORY);
	memset(end->memory + WORD, 0, GRAIN);
	memset(end->memory + CANARY, GUARD, CANARY_SIZE);
	for (uint32_t i = 0; i < SOURCE_SIZE; i++)
		end->memory[SOURCE + i] = source_byte(index, i);
	memset(end->image, EMPTY, IN_SIZE);
	memset(end->out_owner, NOBODY, sizeof(end->out_owner));
	memset(end->in_owner, NOBODY, sizeof(end->in_owner));
	end->matched[0] = end->matched[1] = -1;
}

static void choose_opts(struct world *world, struct end *end, uint32_t lanes)
{
	static const uint32_t sizes[] = { 256, 256, 256, 320, 512 };

	end->opts = (struct snt_qp_opts){
		.size = sizeof(end->opts),
		.scheme = world->scheme,
		.lanes = lanes,
		.flags = lanes == 1 ? SNT_QP_TRACKED : 0,
		.lane_depth = 1 + dice(world, 8),
		.send_depth = 1 + dice(world, 8),
		.recv_depth = 1 + dice(world, 8),
		.send_sge_max = 1 + dice(world, PIECES_MAX),
		.recv_sge_max = 1 + dice(world, PIECES_MAX),
		.inline_max = dice(world, 2) * 64,
		.fragment_size = sizes[dice(world, 5)],
	};
	/* An immediate of DQPLB needs two WRs on one lane. */
	if (world->scheme == SNT_DQPLB && end->opts.lane_depth == 1)
		end->opts.lane_depth = 2;
}

static int open_cqs(struct world *world, struct end *end)
{
	struct snt_cq_opts opts = { .size = sizeof(opts),
				    .depth = 16 + dice(world, 64),
				    .per_device = 18 };
	int ret = snt_cq_create(end->ctx, &opts, &end->cq);

	if (!ret && chance(world, 30))
		ret = snt_cq_create(end->ctx, &opts, &end->recv_cq);
	end->opts.cq = end->cq;
	end->opts.recv_cq = end->recv_cq;
	return ret;
}

static int open_end(struct world *world, unsigned index, uint32_t lanes)
{
	struct end *end = &world->end[index];
	struct snt_adopted adopted[DEVICES_MAX];
	struct snt_ctx_opts opts = { .size = sizeof(opts),
				     .adopted = adopted,
				     .adopted_count = end->devices,
				     .random = even_random };
	struct scripted_device_opts device = { .purge_cqes = chance(world, 30),
					       .round_up = chance(world, 30),
					       .inline_max = 64 };
	int ret;

	for (unsigned i = 0; i < end->devices; i++) {
		end->device[i] = scripted_device_create(world->fabric, &device);
		adopted[i] = scripted_adopted(end->device[i]);
	}
	ret = snt_ctx_open(&opts, &end->ctx);
	end->memory = malloc(MEMORY);
	fill_memory(end, index);
	if (!ret)
		ret = snt_mem_register(end->ctx, end->memory, MEMORY, ACCESS,
				       &end->mem);
	if (!ret)
		ret = snt_mem_token(end->mem, &end->token);
	choose_opts(world, end, lanes);
	if (!ret)
		ret = open_cqs(world, end);
	if (!ret)
		ret = snt_qp_create(end->ctx, &end->opts, &end->qp);
	return ret ? wrong(world, "set-up of end %u: %d, %s", index, ret,
			   snt_err_text())
		   : 0;
}

static void list_lanes(struct end *end)
{
	struct snt_lane_info info = { .size = sizeof(info) };

	while (end->lanes < LANES_MAX && !snt_qp_lane(end->qp, end->lanes, &info))
		end->lane[end->lanes++] = info.qp;
}

int world_open(struct world *world)
{
	uint32_t lanes = 1 + dice(world, 6);
	struct end *end = world->end;

	world->fabric = scripted_fabric_create(world->seed);
	end[0].devices = 1 + dice(world, DEVICES_MAX);
	end[1].devices = 1 + dice(world, DEVICES_MAX);
	/* In SPRAY the number of devices decides on that of notify lanes. */
	if (world->scheme == SNT_SPRAY)
		end[1].devices = end[0].devices;
	for (unsigned i = 0; i < 2; i++) {
		if (open_end(world, i, lanes))
			return -1;
		list_lanes(&end[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		uint64_t size = end[0].opts.fragment_size;

		if (end[1].opts.fragment_size < size)
			size = end[1].opts.fragment_size;
		end[i].message_max = size;
	}
	return 0;
}

/* What must be possible when everything has been said. */
static int end_close(struct world *world, struct end *end)
{
	struct snt_wc wc;
	unsigned faults = 0;
	uint64_t strays = snt_cq_stray(end->cq, NULL, NULL);

	if (end->recv_cq)
		strays += snt_cq_stray(end->recv_cq, NULL, NULL);
	if (snt_cq_poll(end->cq, &wc, 1) ||
	    (end->recv_cq && snt_cq_poll(end->recv_cq, &wc, 1)))
		return wrong(world, "a completion after SNT_CLOSED");
	strays = snt_cq_stray(end->cq, NULL, NULL) +
		 (end->recv_cq ? snt_cq_stray(end->recv_cq, NULL, NULL) : 0);
	if (strays && !world->faulty)
		return wrong(world, "%llu strays", (unsigned long long)strays);
	for (unsigned i = 0; i < end->lanes; i++)
		if (scripted_pending(end->lane[i]))
			return wrong(world, "lane %u has WRs after SNT_CLOSED", i);
	if (snt_qp_destroy(end->qp))
		return wrong(world, "destroy: %s", snt_err_text());
	end->qp = NULL;
	if (snt_cq_destroy(end->cq) || snt_cq_destroy(end->recv_cq))
		return wrong(world, "CQ: %s", snt_err_text());
	if (snt_mem_release(end->mem) || snt_ctx_close(end->ctx))
		return wrong(world, "memory or context: %s", snt_err_text());
	for (unsigned i = 0; i < end->devices; i++)
		faults |= scripted_faults(end->device[i]);
	if (faults & (SCRIPTED_FAULT_CQ_OVERRUN | SCRIPTED_FAULT_DESTROY_BUSY))
		return wrong(world, "faults 0x%x at a device", faults);
	return 0;
}

int world_close(struct world *world)
{
	unsigned left;

	if (end_close(world, &world->end[0]) || end_close(world, &world->end[1]))
		return -1;
	left = scripted_fabric_destroy(world->fabric);
	world->fabric = NULL;
	return left ? wrong(world, "%u objects leaked", left) : 0;
}

/* After a failure the library's objects are left alone: who knows their state. */
void world_free(struct world *world)
{
	free(world->end[0].memory);
	free(world->end[1].memory);
}
