/* SPDX-License-Identifier: MIT */
#include "lib/sim/sim.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/sim/device.h"
#include "lib/sim/random.h"
#include "lib/sim/switch.h"
#include "util/err.h"

/* A function to be called. Lives as long as the fabric: there are few. */
struct snt__sim_call {
	struct snt__sim_call *next;
	void (*fn)(void *arg);
	void *arg;
};

const char *snt__sim_drop_text(enum snt__sim_drop drop)
{
	static const char *const texts[SNT__SIM_DROPS] = {
		[SNT__SIM_DROP_NONE] = "not lost",
		[SNT__SIM_DROP_LOSS] = "lost",
		[SNT__SIM_DROP_QUEUE] = "lost: no room in a queue",
		[SNT__SIM_DROP_CUT] = "lost: the link is cut",
		[SNT__SIM_DROP_DEAD] = "lost: the host is dead",
		[SNT__SIM_DROP_ROUTE] = "lost: no device has this address",
		[SNT__SIM_DROP_CORRUPT] = "lost: damaged",
		[SNT__SIM_DROP_MEMORY] = "lost: no memory for the simulation",
	};

	return drop < SNT__SIM_DROPS ? texts[drop] : "?";
}

int snt__sim_create(const struct snt__sim_opts *opts, struct snt__sim **sim_out)
{
	struct snt__sim *sim = calloc(1, sizeof(*sim));
	int ret = 0;

	if (!sim)
		return snt__fail(ENOMEM, "no memory for a simulation");
	sim->opts = *opts;
	if (!sim->opts.poll_ns)
		sim->opts.poll_ns = 1000;
	if (opts->capture)
		ret = snt__sim_capture_open(opts->capture, &sim->capture);
	if (ret) {
		free(sim);
		return ret;
	}
	*sim_out = sim;
	return 0;
}

static int destroy_host(struct snt__sim_host *host)
{
	while (host->device_count) {
		int ret = snt__sim_device_destroy(host->device[host->device_count - 1]);

		if (ret)
			return ret;
		host->device_count--;
	}
	free(host);
	return 0;
}

int snt__sim_destroy(struct snt__sim *sim)
{
	struct snt__sim_capture *capture;

	if (!sim)
		return 0;
	while (sim->hosts) {
		struct snt__sim_host *next = sim->hosts->next;

		if (destroy_host(sim->hosts))
			return snt__fail(EBUSY, "a simulated device is in use");
		sim->hosts = next;
	}
	while (sim->trunks) {
		struct snt__sim_trunk *trunk = sim->trunks;

		sim->trunks = trunk->next;
		free(trunk);
	}
	while (sim->calls) {
		struct snt__sim_call *call = sim->calls;

		sim->calls = call->next;
		free(call);
	}
	snt__sim_queue_free(&sim->queue);
	snt__sim_pool_free(&sim->pool);
	free(sim->routes);
	capture = sim->capture;
	free(sim);
	return snt__sim_capture_close(capture);
}

uint64_t snt__sim_new_stream(struct snt__sim *sim)
{
	return snt__sim_stream(sim->opts.seed, ++sim->streams);
}

int snt__sim_at(struct snt__sim *sim, uint64_t time_ns, void (*fn)(void *arg),
		void *arg)
{
	struct snt__sim_call *call = malloc(sizeof(*call));

	if (!call)
		return snt__fail(ENOMEM, "no memory for an event");
	call->fn = fn;
	call->arg = arg;
	if (snt__sim_queue_add(&sim->queue, time_ns < sim->now ? sim->now : time_ns,
			       SNT__SIM_CALL, call)) {
		free(call);
		return snt__fail(ENOMEM, "no memory for an event");
	}
	call->next = sim->calls;
	sim->calls = call;
	return 0;
}

bool snt__sim_step(struct snt__sim *sim)
{
	struct snt__sim_event event;
	const struct snt__sim_call *call;

	if (!snt__sim_queue_take(&sim->queue, &event))
		return false;
	sim->now = event.time;
	sim->stats.events++;
	sim->stepping = true;
	switch (snt__sim_event_kind(&event)) {
	case SNT__SIM_PACKET:
		snt__sim_switch_arrive(sim, event.subject);
		break;
	case SNT__SIM_SEND:
		snt__sim_device_send(event.subject);
		break;
	case SNT__SIM_TIMER:
		snt__sim_device_timer(event.subject);
		break;
	case SNT__SIM_CALL:
		call = event.subject;
		sim->stepping = false;
		call->fn(call->arg);
		break;
	}
	sim->stepping = false;
	return true;
}

void snt__sim_run(struct snt__sim *sim, uint64_t until_ns)
{
	while (sim->queue.count && snt__sim_queue_next(&sim->queue) <= until_ns)
		snt__sim_step(sim);
	if (sim->now < until_ns)
		sim->now = until_ns;
}

bool snt__sim_run_idle(struct snt__sim *sim, uint64_t until_ns)
{
	while (sim->queue.count && snt__sim_queue_next(&sim->queue) <= until_ns)
		snt__sim_step(sim);
	return !sim->queue.count;
}
