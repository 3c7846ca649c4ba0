/* SPDX-License-Identifier: MIT */
/* Scenes: the objects of a case, made and destroyed. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "kit.h"

const struct pair_opts pair_defaults = PAIR_DEFAULTS;

static bool made(struct scene *scene, const char *function, int ret)
{
	if (ret)
		say(scene, "%s %s", function, control_name(ret));
	return !ret;
}

bool make_cq(struct scene *scene, unsigned slot, unsigned cqe,
	     struct ibv_comp_channel *channel)
{
	return made(scene, "create_cq",
		    scene->control->create_cq(scene->kit->context, cqe, NULL, channel,
					      0, &scene->cq[slot]));
}

bool make_qp(struct scene *scene, unsigned slot, unsigned end,
	     const struct pair_opts *opts)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	if (!opts)
		opts = &pair_defaults;
	init.send_cq = scene->cq[end];
	init.recv_cq = scene->cq[end];
	init.srq = opts->srq;
	init.cap = opts->cap;
	init.sq_sig_all = opts->sig_all;
	return made(scene, "create_qp",
		    scene->control->create_qp(scene->pd, &init, &scene->qp[slot]));
}

bool make_channel(struct scene *scene, unsigned slot)
{
	if (!made(scene, "create_channel",
		  scene->control->create_channel(scene->kit->context,
						 &scene->channel[slot])))
		return false;
	fcntl(scene->channel[slot]->fd, F_SETFL, O_NONBLOCK);
	return true;
}

bool make_mr(struct scene *scene, unsigned slot, void *addr, size_t length,
	     unsigned access)
{
	return made(scene, "reg_mr",
		    scene->control->reg_mr(scene->pd, addr, length, access,
					   &scene->mr[slot]));
}

bool make_srq(struct scene *scene, unsigned depth)
{
	struct ibv_srq_init_attr init = {
		.attr = { .max_wr = depth, .max_sge = SGES_MAX },
	};

	return made(scene, "create_srq",
		    scene->control->create_srq(scene->pd, &init, &scene->srq));
}

bool make_pair(struct scene *scene, const struct pair_opts *opts)
{
	if (!opts)
		opts = &pair_defaults;
	for (unsigned end = A; end < ENDS; end++)
		if (!make_cq(scene, end, opts->cqe, opts->channel) ||
		    !make_qp(scene, end, end, opts))
			return false;
	return connect_to(scene, A, opts, scene->qp[B]->qp_num) &&
	       connect_to(scene, B, opts, scene->qp[A]->qp_num);
}

bool make_armed_pair(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;

	if (!make_channel(scene, 0))
		return false;
	opts.channel = scene->channel[0];
	return make_pair(scene, &opts) && !ibv_req_notify_cq(scene->cq[A], 0);
}

int drop_qp(struct scene *scene, unsigned slot)
{
	int ret = scene->qp[slot] ? scene->control->destroy_qp(scene->qp[slot]) : 0;

	if (!ret)
		scene->qp[slot] = NULL;
	return ret;
}

int drop_cq(struct scene *scene, unsigned slot)
{
	int ret = scene->cq[slot] ? scene->control->destroy_cq(scene->cq[slot]) : 0;

	if (!ret)
		scene->cq[slot] = NULL;
	return ret;
}

int drop_mr(struct scene *scene, unsigned slot)
{
	int ret = scene->mr[slot] ? scene->control->dereg_mr(scene->mr[slot]) : 0;

	if (!ret)
		scene->mr[slot] = NULL;
	return ret;
}

static void fill(unsigned char *bytes)
{
	for (size_t i = 0; i < AREA; i++)
		bytes[NEAR + i] = i * 7 + i / 251;
	memset(bytes + FAR, CANARY, AREA);
	memset(bytes + SIDE, CANARY, AREA);
}

static bool begin(struct scene *scene)
{
	void *bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (bytes == MAP_FAILED)
		return made(scene, "mmap", -errno);
	scene->bytes = bytes;
	fill(scene->bytes);
	drain_events(scene);
	return made(scene, "alloc_pd",
		    scene->control->alloc_pd(scene->kit->context, &scene->pd)) &&
	       make_mr(scene, 0, scene->bytes, BYTES, ACCESS_ALL);
}

/* A completion that the case did not expect is as good as a wrong one. */
static void look_for_leftovers(struct scene *scene)
{
	for (unsigned i = 0; i < CQS_MAX; i++) {
		struct ibv_wc wcs[WCS_MAX];
		int count = scene->cq[i] ? ibv_poll_cq(scene->cq[i], WCS_MAX, wcs) : 0;

		if (count < 0)
			say(scene, "poll_cq %d", count);
		if (count > 0)
			say_list(scene, "left over", wcs, count);
	}
}

static void end(struct scene *scene)
{
	const struct snt_control *control = scene->control;

	look_for_leftovers(scene);
	drain_events(scene);
	/* Before its QP: rxe waits for a minute with that. */
	if (scene->mw)
		made(scene, "dealloc_mw", control->dealloc_mw(scene->mw));
	for (unsigned i = 0; i < QPS_MAX; i++)
		made(scene, "destroy_qp", drop_qp(scene, i));
	if (scene->srq)
		made(scene, "destroy_srq", control->destroy_srq(scene->srq));
	for (unsigned i = 0; i < CQS_MAX; i++)
		made(scene, "destroy_cq", drop_cq(scene, i));
	for (unsigned i = 0; i < CHANNELS_MAX; i++)
		if (scene->channel[i])
			made(scene, "destroy_channel",
			     control->destroy_channel(scene->channel[i]));
	for (unsigned i = 0; i < MRS_MAX; i++)
		made(scene, "dereg_mr", drop_mr(scene, i));
	if (scene->pd)
		made(scene, "dealloc_pd", control->dealloc_pd(scene->pd));
	if (scene->bytes)
		munmap(scene->bytes, BYTES);
}

const char *scene_run(const struct kit *kit, const struct conformance_case *test)
{
	static struct scene scene;

	memset(&scene, 0, sizeof(scene));
	scene.kit = kit;
	scene.control = kit->control;
	if (begin(&scene))
		test->run(&scene);
	end(&scene);
	return scene.text;
}
