/* SPDX-License-Identifier: MIT */
/* Registration, keys, and the order of destruction. */
#include <sys/mman.h>
#include <unistd.h>

#include "kit.h"

static void try_access(struct scene *scene, const char *what, unsigned access)
{
	struct ibv_mr *mr;
	int ret = scene->control->reg_mr(scene->pd, scene->bytes, 4096, access, &mr);

	say(scene, "%s %s", what, control_name(ret));
	if (!ret && (ret = scene->control->dereg_mr(mr)))
		say(scene, "dereg_mr %s", control_name(ret));
}

static void access_flags(struct scene *scene)
{
	try_access(scene, "none", 0);
	try_access(scene, "all", ACCESS_ALL);
	try_access(scene, "remote read only", IBV_ACCESS_REMOTE_READ);
	try_access(scene, "remote write without local write", IBV_ACCESS_REMOTE_WRITE);
	try_access(scene, "remote atomic without local write",
		   IBV_ACCESS_REMOTE_ATOMIC);
	try_access(scene, "relaxed ordering", ACCESS_ALL | IBV_ACCESS_RELAXED_ORDERING);
}

static void read_only(struct scene *scene)
{
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static const unsigned access[] = { 0, IBV_ACCESS_REMOTE_READ,
					   IBV_ACCESS_LOCAL_WRITE };
	static const char *const names[] = { "none", "remote read", "local write" };

	for (unsigned i = 0; i < ARRAY_SIZE(access); i++) {
		int ret = scene->control->reg_mr(scene->pd, page, 4096, access[i],
						 &scene->mr[1]);

		say(scene, "%s %s", names[i], control_name(ret));
		drop_mr(scene, 1);
	}
	munmap(page, 4096);
}

static void odd_ranges(struct scene *scene)
{
	struct ibv_mr **mr = &scene->mr[1];
	int ret;

	ret = scene->control->reg_mr(scene->pd, scene->bytes, 0, 0, mr);
	say(scene, "no bytes %s", control_name(ret));
	drop_mr(scene, 1);
	ret = scene->control->reg_mr(scene->pd, scene->bytes + 5, 3, 0, mr);
	say(scene, "3 bytes at an odd address %s", control_name(ret));
	drop_mr(scene, 1);
	ret = scene->control->reg_mr(scene->pd, (void *)4096, 4096, 0, mr);
	say(scene, "not mapped %s", control_name(ret));
	drop_mr(scene, 1);
}

static void twice(struct scene *scene)
{
	if (!make_mr(scene, 1, scene->bytes, 4096, 0) ||
	    !make_mr(scene, 2, scene->bytes, 4096, 0))
		return;
	say(scene, "lkeys %s",
	    scene->mr[1]->lkey == scene->mr[2]->lkey ? "equal" : "differ");
}

static void dmabuf(struct scene *scene)
{
	int fd = memfd_create("conformance", 0);
	int ret;

	if (ftruncate(fd, 4096))
		say(scene, "ftruncate failed");
	ret = scene->control->reg_dmabuf_mr(scene->pd, fd, 0, 4096, 0, ACCESS_ALL,
					    &scene->mr[1]);
	say(scene, "%s", control_name(ret));
	close(fd);
}

static void stale_rkey(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL) ||
	    !make_mr(scene, 1, scene->bytes + FAR, 4096, ACCESS_ALL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 16);
	send.wr.wr.rdma.rkey = scene->mr[1]->rkey;
	say(scene, "dereg_mr %s", control_name(drop_mr(scene, 1)));
	must_send(scene, A, &send);
	say_all_wcs(scene, A, 1);
	say_data(scene, "memory", FAR, 16);
}

static void stale_lkey(struct scene *scene)
{
	struct send send;

	if (!make_pair(scene, NULL) ||
	    !make_mr(scene, 1, scene->bytes, 4096, ACCESS_ALL))
		return;
	send_init(scene, &send, IBV_WR_RDMA_WRITE, 16);
	send.sge[0].lkey = scene->mr[1]->lkey;
	say(scene, "dereg_mr %s", control_name(drop_mr(scene, 1)));
	must_send(scene, A, &send);
	say_all_wcs(scene, A, 1);
	say_data(scene, "memory", FAR, 16);
}

/* The receive is posted while the key is good and used when it is not. */
static void stale_receive(struct scene *scene)
{
	struct recv recv;

	if (!make_pair(scene, NULL) ||
	    !make_mr(scene, 1, scene->bytes + SIDE, 4096, ACCESS_ALL))
		return;
	recv_init(scene, &recv, 16);
	recv.sge[0].lkey = scene->mr[1]->lkey;
	must_recv(scene, B, &recv);
	say(scene, "dereg_mr %s", control_name(drop_mr(scene, 1)));
	do_send(scene, A, IBV_WR_SEND, 16);
	say_all_wcs(scene, A, 1);
	say_all_wcs(scene, B, 1);
	say_data(scene, "memory", SIDE, 16);
}

static void foreign_pd(struct scene *scene)
{
	struct ibv_pd *pd;
	struct send send;
	int ret;

	if (!make_pair(scene, NULL))
		return;
	ret = scene->control->alloc_pd(scene->kit->context, &pd);
	if (ret) {
		say(scene, "alloc_pd %s", control_name(ret));
		return;
	}
	ret = scene->control->reg_mr(pd, scene->bytes + FAR, 4096, ACCESS_ALL,
				     &scene->mr[1]);
	if (!ret) {
		send_init(scene, &send, IBV_WR_RDMA_WRITE, 16);
		send.wr.wr.rdma.rkey = scene->mr[1]->rkey;
		must_send(scene, A, &send);
		say_all_wcs(scene, A, 1);
		drop_mr(scene, 1);
	}
	ret = scene->control->dealloc_pd(pd);
	if (ret)
		say(scene, "dealloc_pd %s", control_name(ret));
}

static void busy_pd(struct scene *scene)
{
	int ret = scene->control->dealloc_pd(scene->pd);

	say(scene, "with an MR %s", control_name(ret));
	if (!ret) {
		scene->pd = NULL;
		return;
	}
	drop_mr(scene, 0);
	if (!make_cq(scene, A, 16, NULL) || !make_qp(scene, A, A, NULL))
		return;
	ret = scene->control->dealloc_pd(scene->pd);
	say(scene, "with a QP %s", control_name(ret));
	if (!ret)
		scene->pd = NULL;
}

static void busy_cq(struct scene *scene)
{
	if (!make_cq(scene, A, 16, NULL) || !make_qp(scene, A, A, NULL))
		return;
	say(scene, "with a QP %s", control_name(drop_cq(scene, A)));
	drop_qp(scene, A);
	say(scene, "without %s", control_name(drop_cq(scene, A)));
}

static void busy_channel(struct scene *scene)
{
	int ret;

	if (!make_channel(scene, 0) || !make_cq(scene, A, 16, scene->channel[0]))
		return;
	ret = scene->control->destroy_channel(scene->channel[0]);
	say(scene, "with a CQ %s", control_name(ret));
	if (!ret)
		scene->channel[0] = NULL;
}

static void busy_srq(struct scene *scene)
{
	struct pair_opts opts = PAIR_DEFAULTS;
	int ret;

	if (!make_srq(scene, 8) || !make_cq(scene, A, 16, NULL))
		return;
	opts.srq = scene->srq;
	if (!make_qp(scene, A, A, &opts))
		return;
	ret = scene->control->destroy_srq(scene->srq);
	say(scene, "with a QP %s", control_name(ret));
	if (!ret)
		scene->srq = NULL;
}

const struct conformance_case cases_memory[] = {
	{ "register-access", "registers with different access flags", access_flags },
	{ "register-read-only", "registers a mapping that cannot be written",
	  read_only },
	{ "register-odd-ranges", "registers strange ranges", odd_ranges },
	{ "register-twice", "registers the same memory twice", twice },
	{ "register-dmabuf", "registers a memfd as if it were a dma-buf", dmabuf },
	{ "stale-rkey", "WRITE to memory that was deregistered", stale_rkey },
	{ "stale-lkey", "WRITE from memory that was deregistered", stale_lkey },
	{ "stale-receive", "SEND into a receive whose memory was deregistered",
	  stale_receive },
	{ "foreign-pd", "WRITE to memory of another PD", foreign_pd },
	{ "busy-pd", "deallocates a PD that is in use", busy_pd },
	{ "busy-cq", "destroys a CQ that is in use", busy_cq },
	{ "busy-channel", "destroys a channel that is in use", busy_channel },
	{ "busy-srq", "destroys an SRQ that is in use", busy_srq },
	{ 0 },
};
