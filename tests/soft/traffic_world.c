/* SPDX-License-Identifier: MIT */
#include "traffic.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/rc.h"

#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)
#define ADDRESS	   ((void *)0x200000000000)
#define MEMORY_ALL (PAIRS_MAX * 2 * MEMORY + DEVICES_MAX * DEVICE_MEMORY)
#define US	   1000u
#define MS	   1000000u

/*
 * Memory
 */

static unsigned char *map_memory(void)
{
	static void *memory;

	if (!memory)
		memory = mmap(ADDRESS, MEMORY_ALL, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	return memory == ADDRESS ? memory : NULL;
}

const unsigned char *source_image(const struct end *end)
{
	static unsigned char images[PAIRS_MAX][2][SOURCE_SIZE];
	static bool made[PAIRS_MAX][2];
	unsigned char *image = images[end->pair][end->side];

	for (uint32_t i = 0; !made[end->pair][end->side] && i < SOURCE_SIZE; i++)
		image[i] = source_byte(end, i);
	made[end->pair][end->side] = true;
	return image;
}

static void fill_memory(struct world *world, unsigned char *memory)
{
	for (unsigned i = 0; i < world->devices; i++) {
		world->device[i].memory = memory;
		memset(memory, EMPTY, DEVICE_MEMORY);
		memset(memory, 0, SRQ_RECV);
		memory += DEVICE_MEMORY;
	}
	for (unsigned i = 0; i < world->pairs * 2; i++) {
		struct end *end = &world->end[i / 2][i % 2];

		end->memory = memory;
		memset(memory, EMPTY, MEMORY);
		memset(memory + WORD, 0, SOURCE - WORD);
		memset(memory + CANARY, GUARD, CANARY_SIZE);
		memset(memory + EDGE, GUARD, EDGE_SIZE);
		memcpy(memory + SOURCE, source_image(end), SOURCE_SIZE);
		memory += MEMORY;
	}
}

/*
 * The fabric
 */

/* Faults that a seed has: none in some, each of them in one of three others. */
static void choose_faults(struct world *world)
{
	bool peaceful = chance(world, 10);
	/* Those that end a connection would hide what the others do. */
	bool gentle = chance(world, 50);

	for (unsigned i = 0; i < FAULTS; i++)
		if (chance(world, i >= CUT && i <= BAD ? 15 : 33) && !peaceful &&
		    !(gentle && i >= CUT && i <= BAD))
			world->faults |= 1u << i;
	world->faults &= world->plan->faults;
}

static struct snt__sim_link_opts choose_link(struct world *world)
{
	static const uint32_t speeds[] = { 1000, 10000, 100000 };
	static const uint32_t worst[] = { 5000, 30000, 100000 };
	uint32_t loss = between(world, 1000, worst[dice(world, 3)]);
	uint32_t corrupt = between(world, 1000, worst[dice(world, 3)]);
	uint32_t duplicate = between(world, 1000, 200000);
	uint32_t reorder = between(world, 1000, 100000);
	uint32_t jitter = between(world, 100, 10 * US);
	uint32_t mix = between(world, US, 50 * US);
	uint32_t speed = speeds[dice(world, 3)];
	uint32_t queue = between(world, 8 << 10, 64 << 10);

	return (struct snt__sim_link_opts){
		.delay_ns = between(world, 100, 5 * US),
		.late_ns = between(world, US, 30 * US),
		.loss = has(world, LOSS) ? loss : 0,
		.corrupt = has(world, CORRUPT) ? corrupt : 0,
		.duplicate = has(world, DUPLICATE) ? duplicate : 0,
		.reorder = has(world, REORDER) ? reorder : 0,
		.jitter_ns = has(world, JITTER) ? jitter : 0,
		.mix_ns = has(world, MIX) ? mix : 0,
		.mbps = has(world, BANDWIDTH) ? speed : 0,
		.queue_bytes = has(world, BANDWIDTH) ? queue : 0,
	};
}

static int open_device(struct world *world, unsigned index)
{
	struct device *device = &world->device[index];
	struct snt__sim_host *host = world->host[index % world->hosts];
	struct snt__sim_link_opts out = choose_link(world), in = choose_link(world);
	const uint8_t gids[2][16] = {
		{ [10] = 0xff, 0xff, 10, 0, host->number, index + 1 },
		{ 0xfd, [14] = host->number, index + 1 },
	};
	static const uint32_t windows[] = { 0, 0, 4096, 16384, 65536 };
	struct snt__sim_device_opts opts = {
		.out = &out,
		.in = &in,
		.gids = gids,
		.gid_count = 2,
		.turnaround_ns = chance(world, 50) ? dice(world, 2 * US) : 0,
		.config = { .request_window = windows[dice(world, 5)],
			    .response_window = windows[dice(world, 5)],
			    .qp_max = 2 * PAIRS_MAX,
			    .cq_max = CQS_MAX,
			    .mr_max = 64,
			    .srq_max = 1 },
	};
	int ret = snt__sim_device_create(host, &opts, &device->sim);

	if (ret)
		return wrong(world, "device: %d", ret);
	device->control = device->sim->adopted->control;
	device->context = device->sim->adopted->context;
	device->pd = device->sim->adopted->pd;
	device->lost = out.loss + out.corrupt + in.loss + in.corrupt;
	return 0;
}

static int open_fabric(struct world *world)
{
	struct snt__sim_opts opts = { .seed = world->plan->seed,
				      .capture = world->plan->capture };
	int ret = snt__sim_create(&opts, &world->sim);

	if (ret)
		return search_wrong("simulation: %d", ret);
	world->hosts = between(world, 1, HOSTS_MAX);
	world->devices = between(world, world->hosts, DEVICES_MAX);
	for (unsigned i = 0; i < world->hosts; i++)
		if (snt__sim_host_create(world->sim, &world->host[i]))
			return wrong(world, "host");
	for (unsigned i = 0; i < world->devices; i++)
		if (open_device(world, i))
			return -1;
	return 0;
}

/*
 * Verbs objects
 */

static int open_objects(struct world *world, struct device *device)
{
	const struct snt_control *control = device->control;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 64,
						   .max_sge = PIECES_MAX } };
	int ret = control->reg_mr(device->pd, device->memory, DEVICE_MEMORY, ACCESS,
				  &device->mr);

	device->cqs = between(world, 1, CQS_MAX);
	if (!ret && chance(world, 20))
		ret = control->create_channel(device->context, &device->channel);
	for (unsigned i = 0; !ret && i < device->cqs; i++)
		ret = control->create_cq(device->context, 1024, NULL, device->channel,
					 0, &device->cq[i]);
	if (!ret && chance(world, 30))
		ret = control->create_srq(device->pd, &srq, &device->srq);
	return ret ? wrong(world, "objects of a device: %d", ret) : 0;
}

static void choose_qp(struct world *world, struct end *end)
{
	static const uint32_t inline_max[] = { 0, 128,
					       512 }; /* also more than an MTU */

	end->cap = (struct ibv_qp_cap){ .max_send_wr = between(world, 2, 16),
					.max_recv_wr = between(world, 1, 16),
					.max_send_sge = between(world, 1, PIECES_MAX),
					.max_recv_sge = between(world, 1, PIECES_MAX),
					.max_inline_data = inline_max[dice(world, 3)] };
	end->sig_all = chance(world, 15);
	end->srq = end->device->srq && chance(world, 50);
	end->send_cq = end->device->cq[dice(world, end->device->cqs)];
	end->recv_cq = end->device->cq[dice(world, end->device->cqs)];
	/* Long enough for packets to be held back, and for queues. */
	end->timeout =
		between(world, has(world, MIX) || has(world, BANDWIDTH) ? 9 : 6, 11);
	end->retry_cnt = between(world, 0, 3);
	end->rnr_retry = chance(world, 50) ? dice(world, 4) : 7;
	if (!has(world, GIVE_UP))
		end->retry_cnt = end->rnr_retry = 7;
	end->rnr_timer = between(world, 1, 8);
	end->reads = between(world, 1, 8);
	end->reads_answered = between(world, 1, 8);
}

static int open_end(struct world *world, struct end *end)
{
	const struct snt_control *control = end->device->control;
	struct ibv_pd *pd = end->device->pd;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	int ret;

	choose_qp(world, end);
	init.cap = end->cap;
	init.send_cq = end->send_cq;
	init.recv_cq = end->recv_cq;
	init.sq_sig_all = end->sig_all;
	init.srq = end->srq ? end->device->srq : NULL;
	ret = control->create_qp(pd, &init, &end->qp);
	if (!ret)
		ret = control->reg_mr(pd, end->memory, MEMORY, ACCESS, &end->mr);
	if (!ret)
		ret = control->reg_mr(pd, end->memory, MEMORY,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
				      &end->closed_mr);
	if (!ret)
		ret = control->alloc_mw(pd, &end->mw);
	if (ret)
		return wrong(world, "QP: %d", ret);
	if (init.cap.max_send_wr < end->cap.max_send_wr ||
	    init.cap.max_inline_data < end->cap.max_inline_data)
		return wrong(world, "QP: less was granted than asked for");
	end->cap = init.cap;
	return 0;
}

/* Pairs find each other on any devices, also on one and the same. */
static void place_pairs(struct world *world)
{
	static const uint32_t mtus[] = { 256, 256, 256, 512, 512, 1024, 1024, 4096 };

	world->pairs = between(world, 1, PAIRS_MAX);
	for (unsigned i = 0; i < world->pairs; i++) {
		uint32_t mtu = mtus[dice(world, 8)];

		for (unsigned side = 0; side < 2; side++) {
			struct end *end = &world->end[i][side];

			end->device = &world->device[dice(world, world->devices)];
			end->peer = &world->end[i][!side];
			end->pair = i;
			end->side = side;
			end->mtu = mtu;
		}
	}
}

enum ibv_qp_state world_state(const struct end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (end->device->control->query_qp(end->qp, &attr, IBV_QP_STATE, &init))
		return IBV_QPS_ERR;
	return attr.qp_state;
}

static void address(const struct end *end, unsigned gid, struct ibv_ah_attr *ah)
{
	struct ibv_gid_entry entry;
	const struct device *device = end->peer->device;

	device->control->query_gid(device->context, 1, gid, &entry);
	ah->is_global = 1;
	ah->port_num = 1;
	ah->grh.sgid_index = gid;
	ah->grh.dgid = entry.gid;
	ah->grh.hop_limit = 64;
	ah->grh.flow_label = end->pair * 7;
}

static int attributes(struct end *end, enum ibv_qp_state state, unsigned gid,
		      const uint32_t psn[2], struct ibv_qp_attr *attr)
{
	const struct end *peer = end->peer;

	*attr = (struct ibv_qp_attr){
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = __builtin_ctz(end->mtu) - 7,
		.dest_qp_num = peer->qp->qp_num,
		.sq_psn = psn[end->side],
		.rq_psn = psn[peer->side],
		.max_rd_atomic = end->reads < peer->reads_answered
					 ? end->reads
					 : peer->reads_answered,
		.max_dest_rd_atomic = end->reads_answered,
		.min_rnr_timer = end->rnr_timer,
		.timeout = end->timeout,
		.retry_cnt = end->retry_cnt,
		.rnr_retry = end->rnr_retry,
	};
	address(end, gid, &attr->ah_attr);
	return rc_mask(state);
}

int world_set_state(struct world *world, struct end *end, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int ret = end->device->control->modify_qp(end->qp, &attr, IBV_QP_STATE);

	trace(world, "%u.%u to state %d: %d", end->pair, end->side, state, ret);
	if (ret && !end->device->killed)
		return wrong(world, "%u.%u to state %d: %d", end->pair, end->side,
			     state, ret);
	end->in_error = state == IBV_QPS_ERR;
	return 0;
}

/* With other keys. */
int world_register_anew(struct world *world, struct end *end)
{
	const struct snt_control *control = end->device->control;
	int ret = control->dereg_mr(end->mr);

	if (!ret)
		ret = control->reg_mr(end->device->pd, end->memory, MEMORY, ACCESS,
				      &end->mr);
	return ret ? wrong(world, "memory: %d", ret) : 0;
}

/* Both ends of its pair. PSNs often begin where they are about to wrap. */
int world_connect(struct world *world, struct end *end)
{
	static const enum ibv_qp_state way[] = { IBV_QPS_INIT, IBV_QPS_RTR,
						 IBV_QPS_RTS };
	unsigned gid = dice(world, 2);
	uint32_t psn[2];

	for (unsigned i = 0; i < 2; i++)
		psn[i] = chance(world, 50) ? 0xffffff - dice(world, 40)
					   : dice(world, 0x1000000);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned side = 0; side < 2; side++) {
			struct end *here = side ? end->peer : end;
			struct ibv_qp_attr attr;
			int mask = attributes(here, way[i], gid, psn, &attr);
			int ret =
				here->device->control->modify_qp(here->qp, &attr, mask);

			if (ret)
				return wrong(world, "connecting: %d", ret);
		}
	trace(world, "%u: %u on %s, %u on %s; PSNs 0x%x, 0x%x; MTU %u", end->pair,
	      end->qp->qp_num, end->device->sim->name, end->peer->qp->qp_num,
	      end->peer->device->sim->name, psn[end->side], psn[!end->side], end->mtu);
	return 0;
}

/*
 * Faults at some time
 */

static void cut(void *arg)
{
	snt__sim_device_cut(arg, true);
}

static void restore(void *arg)
{
	snt__sim_device_cut(arg, false);
}

static void port_down(void *arg)
{
	snt__sim_device_set_port(arg, false);
}

static void port_up(void *arg)
{
	snt__sim_device_set_port(arg, true);
}

static void kill_device(void *arg)
{
	struct device *device = arg;

	device->killed = true;
	snt__sim_device_kill(device->sim);
}

static void kill_host(void *arg)
{
	snt__sim_host_kill(arg);
}

static void schedule_faults(struct world *world)
{
	struct device *device = &world->device[dice(world, world->devices)];
	struct snt__sim_host *host = world->host[dice(world, world->hosts)];
	uint64_t at = dice(world, MS), later = at + dice(world, 20 * MS);
	struct snt__sim *sim = world->sim;

	if (has(world, CUT)) {
		snt__sim_at(sim, at, cut, device->sim);
		snt__sim_at(sim, later, restore, device->sim);
	} else if (has(world, PORT)) {
		snt__sim_at(sim, at, port_down, device->sim);
		snt__sim_at(sim, later, port_up, device->sim);
	}
	if (has(world, DEVICE))
		snt__sim_at(sim, later / 8, kill_device, device);
	if (has(world, HOST))
		snt__sim_at(sim, at, kill_host, host);
	world->harmed = has(world, CUT) || has(world, PORT) || has(world, DEVICE) ||
			has(world, HOST);
}

int world_open(struct world *world, const struct search_plan *plan)
{
	unsigned char *memory = map_memory();

	memset(world, 0, sizeof(*world));
	world->plan = plan;
	world->random = plan->seed;
	if (!memory)
		return search_wrong("memory at a fixed address: %s", strerror(errno));
	choose_faults(world);
	if (open_fabric(world))
		return -1;
	place_pairs(world);
	fill_memory(world, memory);
	for (unsigned i = 0; i < world->devices; i++)
		if (open_objects(world, &world->device[i]))
			return -1;
	for (unsigned i = 0; i < world->pairs; i++)
		if (open_end(world, &world->end[i][0]) ||
		    open_end(world, &world->end[i][1]) ||
		    world_connect(world, &world->end[i][0]))
			return -1;
	schedule_faults(world);
	return 0;
}

/*
 * The end
 */

/* Events are no more than that; what matters is that each can be taken. */
static int drain_events(struct world *world, struct device *device)
{
	struct pollfd poller = { .fd = device->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	struct ibv_cq *cq;
	void *context;

	while (poll(&poller, 1, 0) == 1) {
		if (device->control->get_async_event(device->context, &event))
			return wrong(world, "an event that cannot be had");
		trace(world, "%s: event %d", device->sim->name, event.event_type);
		if (event.event_type == IBV_EVENT_CQ_ERR)
			return wrong(world, "a CQ has overrun");
		device->control->ack_async_event(&event);
	}
	if (!device->channel)
		return 0;
	poller.fd = device->channel->fd;
	while (poll(&poller, 1, 0) == 1) {
		if (device->control->get_cq_event(device->channel, &cq, &context))
			return wrong(world, "a CQ event that cannot be had");
		device->control->ack_cq_events(cq, 1);
	}
	return 0;
}

static int close_device(struct world *world, struct device *device)
{
	const struct snt_control *control = device->control;
	int ret = 0;

	if (drain_events(world, device))
		return -1;
	for (unsigned i = 0; i < world->pairs * 2; i++) {
		struct end *end = &world->end[i / 2][i % 2];

		if (end->device != device)
			continue;
		ret |= control->destroy_qp(end->qp);
		ret |= control->dereg_mr(end->mr);
		ret |= control->dealloc_mw(end->mw);
		ret |= control->dereg_mr(end->closed_mr);
	}
	for (unsigned i = 0; i < device->cqs; i++)
		ret |= control->destroy_cq(device->cq[i]);
	if (device->srq)
		ret |= control->destroy_srq(device->srq);
	if (device->channel)
		ret |= control->destroy_channel(device->channel);
	ret |= control->dereg_mr(device->mr);
	return ret ? wrong(world, "destroying: %d", ret) : 0;
}

int world_close(struct world *world)
{
	int ret;

	for (unsigned i = 0; i < world->devices; i++)
		if (close_device(world, &world->device[i]))
			return -1;
	search_count(world->sim);
	ret = snt__sim_destroy(world->sim);
	return ret ? search_wrong("destroying the simulation: %d", ret) : 0;
}
