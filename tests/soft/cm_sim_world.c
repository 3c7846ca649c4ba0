/* SPDX-License-Identifier: MIT */
/* Hosts, their devices and managers, and what happens to them. */
#include "cm_sim.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "dev/soft/core.h"
#include "lib/sim/switch.h"
#include "lib/cm_check.h"

struct world world;

static const struct snt__cm_table *const table = &snt__cm_soft;

int wrong(const struct end *end, const char *format, ...)
{
	va_list args;

	printf("# at %llu ns, %u hosts", (unsigned long long)snt__sim_now(world.sim),
	       world.hosts);
	if (end)
		printf(", end %u of host %u (%s, stage %u, peer %d)", end->index,
		       end->host->index, end->passive ? "passive" : "active",
		       end->stage, (int)end->peer);
	printf(":\n");
	va_start(args, format);
	search_wrong_args(format, args);
	va_end(args);
	return -1;
}

/*
 * Managers
 */

static struct snt__soft_cm *machine_of(const struct device *device)
{
	return device->sim->core->mads.arg;
}

int check_managers(void)
{
	for (unsigned i = 0; i < world.hosts; i++) {
		const struct host *host = &world.host[i];

		for (unsigned k = 0; !host->dead && k < host->devices; k++) {
			const char *text = cm_check(machine_of(&host->device[k]));

			if (text)
				return wrong(NULL, "host %u: %s", i, text);
		}
	}
	return 0;
}

uint64_t given_up(const struct host *host)
{
	uint64_t count = host->given_up;

	for (unsigned i = 0; !host->dead && i < host->devices; i++)
		count += machine_of(&host->device[i])->stats.given_up;
	return count;
}

bool has_evicted(const struct host *host)
{
	for (unsigned i = 0; !host->dead && i < host->devices; i++)
		if (machine_of(&host->device[i])->stats.evicted)
			return true;
	return false;
}

uint64_t patience_ns(void)
{
	for (unsigned i = 0; i < world.hosts; i++)
		if (!world.host[i].dead)
			return snt__soft_cm_patience_ns(
				machine_of(&world.host[i].device[0]));
	return 10 * S;
}

static int open_manager(struct host *host)
{
	struct snt__cm_device on[DEVICES_MAX];
	struct snt__cm_opts opts = {
		.devices = on,
		.device_count = host->devices,
		.connection_max = has(LIMIT) ? 1 + dice(6) : ENDS_MAX,
		.listener_max = 2,
	};
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };

	for (unsigned i = 0; i < host->devices; i++)
		on[i] = (struct snt__cm_device){
			snt__soft_device_context(host->device[i].sim->core), 1
		};
	if (table->open(&opts, &host->cm))
		return wrong(NULL, "a manager cannot be opened");
	host->listens = chance(90);
	if (host->listens &&
	    table->listen(host->cm, (struct sockaddr *)&any,
			  has(LIMIT) ? 1 + dice(3) : ENDS_MAX, &host->listener))
		return wrong(NULL, "cannot listen");
	return 0;
}

/*
 * Hosts
 */

/* Losses are such that ten tries rarely all fail; times are shorter than the first
 * interval between two of them. */
static struct snt__sim_link_opts choose_link(void)
{
	static const uint32_t worst[] = { 10000, 100000, 300000 };
	uint32_t loss = dice(world.real_qps ? 10000 : worst[dice(3)]);
	uint32_t corrupt = dice(world.real_qps ? 10000 : 50000);
	uint32_t duplicate = dice(300000), reorder = dice(300000);
	uint32_t jitter = dice(2 * MS), delay = dice(2 * MS), late = dice(5 * MS);

	return (struct snt__sim_link_opts){
		.delay_ns = delay,
		.late_ns = late,
		.loss = has(LOSS) ? loss : 0,
		.corrupt = has(CORRUPT) ? corrupt : 0,
		.duplicate = has(DUPLICATE) ? duplicate : 0,
		.reorder = has(REORDER) ? reorder : 0,
		.jitter_ns = has(JITTER) ? jitter : 0,
	};
}

static void make_gid(const struct host *host, unsigned index, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (world.ipv6) {
		gid[0] = 0xfd;
	} else {
		gid[10] = gid[11] = 0xff;
		gid[12] = 10;
	}
	gid[14] = (uint8_t)host->index;
	gid[15] = (uint8_t)(index + 1);
}

static int open_device(struct host *host, unsigned index)
{
	struct snt__sim_link_opts out = choose_link(), in = choose_link();
	struct device *device = &host->device[index];
	uint8_t gid[1][16];
	struct snt__sim_device_opts opts = {
		.out = &out,
		.in = &in,
		.gids = (const uint8_t(*)[16])gid,
		.gid_count = 1,
		.turnaround_ns = chance(30) ? dice(20 * US) : 0,
		.config = { .qp_max = 64, .cq_max = 2, .mr_max = 4, .srq_max = 1 },
	};
	const struct snt_control *control = snt__soft_control();
	struct ibv_context *context;

	make_gid(host, index, gid[0]);
	if (snt__sim_device_create(host->sim, &opts, &device->sim))
		return wrong(NULL, "a device cannot be made");
	context = snt__soft_device_context(device->sim->core);
	if (control->create_cq(context, 4 * ENDS_MAX, NULL, NULL, 0, &device->cq) ||
	    control->reg_mr(device->sim->adopted->pd, device->memory,
			    sizeof(device->memory), IBV_ACCESS_LOCAL_WRITE,
			    &device->mr))
		return wrong(NULL, "verbs fail");
	return 0;
}

int start_host(struct host *host)
{
	host->life++;
	host->dead = false;
	host->qpn = 16;
	if (snt__sim_host_create(world.sim, &host->sim))
		return wrong(NULL, "a host cannot be made");
	for (unsigned i = 0; i < host->devices; i++)
		if (open_device(host, i))
			return -1;
	return open_manager(host);
}

/* Nothing leaves the host any more, so that all can be taken down in silence. */
int crash_host(struct host *host)
{
	const struct snt_control *control = snt__soft_control();
	int ret = 0;

	host->given_up = given_up(host);
	snt__sim_host_kill(host->sim);
	for (unsigned i = 0; i < world.ends; i++) {
		struct end *end = &world.end[i];

		if (end->host != host)
			continue;
		/* What it had to say to the peer of one that is gone dies with it. */
		end->crashed = true;
		if (end->stage != DESTROYED)
			destroy_end(end);
	}
	table->destroy(host->listener);
	host->listener = NULL;
	ret |= table->close(host->cm);
	host->cm = NULL;
	for (unsigned i = 0; i < host->devices; i++) {
		struct device *device = &host->device[i];

		ret |= control->destroy_cq(device->cq);
		ret |= control->dereg_mr(device->mr);
		/* The next one may have its addresses. */
		snt__sim_route_remove(world.sim, device->sim);
	}
	host->dead = true;
	return ret ? wrong(NULL, "host %u cannot be taken down: %d", host->index, ret)
		   : 0;
}

void heal(void)
{
	static const struct snt__sim_link_opts good = { .delay_ns = 1000 };

	for (unsigned i = 0; i < world.hosts; i++) {
		struct host *host = &world.host[i];

		for (unsigned k = 0; !host->dead && k < host->devices; k++) {
			struct snt__sim_device *device = host->device[k].sim;

			device->out.opts = device->in.opts = good;
			snt__sim_device_cut(device, false);
		}
	}
}

/*
 * Worlds
 */

static void choose_faults(void)
{
	bool peaceful = chance(10), gentle = chance(60);

	world.faults = 0;
	for (unsigned i = 0; i < FAULTS; i++)
		if (!peaceful && chance(40) && !(gentle && i >= CUT && i <= RESTART))
			world.faults |= 1u << i;
	world.faults &= world.plan->faults;
	world.disturbed = has(CUT) || has(KILL) || has(RESTART);
}

int open_world(const struct search_plan *plan)
{
	struct snt__sim_opts opts = { .seed = plan->seed, .capture = plan->capture };

	memset(&world, 0, sizeof(world));
	world.plan = plan;
	world.random = plan->seed;
	choose_faults();
	world.ipv6 = chance(30);
	world.real_qps = chance(30);
	world.hosts = 2 + dice(HOSTS_MAX - 1);
	if (snt__sim_create(&opts, &world.sim))
		return search_wrong("simulation");
	for (unsigned i = 0; i < world.hosts; i++) {
		world.host[i].index = i;
		world.host[i].devices = 1 + dice(DEVICES_MAX);
		if (start_host(&world.host[i]))
			return -1;
	}
	return 0;
}

int close_world(void)
{
	for (unsigned i = 0; i < world.hosts; i++)
		if (!world.host[i].dead && crash_host(&world.host[i]))
			return -1;
	search_count(world.sim);
	if (snt__sim_destroy(world.sim))
		return search_wrong("something is left");
	return 0;
}
