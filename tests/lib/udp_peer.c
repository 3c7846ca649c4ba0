/* SPDX-License-Identifier: MIT */
#include "lib/udp_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/rc.h"

/* How often a CQ is looked at before its events are waited for, and for how long: 8 MiB
 * take their time on a bad network. */
#define SPINS	1000
#define WAIT_MS 240000

_Noreturn void peer_fail(const struct peer *peer, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "# %s: ", peer->name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(1);
}

static void check_peer_call(const struct peer *peer, int ret, const char *what)
{
	if (ret)
		peer_fail(peer, "%s: %s; %s", what, strerror(-ret), snt_err_text());
}

void peer_swap(const struct peer *peer, const void *ours, void *theirs, size_t size)
{
	if (write(peer->with, ours, size) != (ssize_t)size ||
	    read(peer->with, theirs, size) != (ssize_t)size)
		peer_fail(peer, "the other process is gone");
}

/*
 * What the peer has written is here, since it was told so before it came. But it was
 * written by a thread of this process: that it does so after this one came here, and
 * before this one goes on, is between it and the device, whose lock this takes.
 */
static void touch_device(struct peer *peer)
{
	if (peer->cq && ibv_req_notify_cq(peer->cq, 0))
		peer_fail(peer, "cannot be notified");
}

void peer_meet(struct peer *peer)
{
	char word = 0;

	touch_device(peer);
	peer_swap(peer, &word, &word, 1);
	touch_device(peer);
}

static bool is_suitable(const struct snt_gid_info *gid, bool ipv6)
{
	bool mapped = strchr(gid->text, '.'),
	     link_local = !strncmp(gid->text, "fe80", 4);

	return gid->type == SNT_GID_ROCE_V2 && mapped == !ipv6 && !link_local;
}

static void find_peer_gid(struct peer *peer, struct snt_device *device, bool ipv6,
			  uint32_t *index_out)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	unsigned i = 0;

	while (!snt_device_query_gid(device, i, &gid) && !is_suitable(&gid, ipv6))
		i++;
	check_peer_call(peer, snt_device_query_gid(device, i, &gid), "GID");
	memcpy(peer->card.gid, gid.raw, sizeof(gid.raw));
	*index_out = gid.index;
}

static void make_peer_qp(struct peer *peer, struct snt_device *device)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { PEER_DEPTH, PEER_DEPTH, 1, 1, 0 },
		.sq_sig_all = 1,
	};

	peer->control = snt_device_control(device);
	peer->context = snt_device_context(device);
	peer->bytes = aligned_alloc(4096, 2 * PEER_AREA + 4096);
	check_peer_call(peer, peer->bytes ? 0 : -ENOMEM, "memory");
	memset(peer->bytes, 0, 2 * PEER_AREA + 4096);
	check_peer_call(peer,
			peer->control->create_channel(peer->context, &peer->channel),
			"channel");
	check_peer_call(peer,
			peer->control->create_cq(peer->context, 4 * PEER_DEPTH, NULL,
						 peer->channel, 0, &peer->cq),
			"CQ");
	check_peer_call(peer,
			peer->control->reg_mr(snt_device_pd(device), peer->bytes,
					      2 * PEER_AREA + 4096, PEER_ACCESS,
					      &peer->mr),
			"MR");
	init.send_cq = init.recv_cq = peer->cq;
	check_peer_call(peer,
			peer->control->create_qp(snt_device_pd(device), &init,
						 &peer->qp),
			"QP");
	peer->card.addr = (uintptr_t)peer->bytes;
	peer->card.key = peer->mr->rkey;
	peer->card.qpn = peer->qp->qp_num;
	peer->card.psn = 0xfffff0 ^ (peer->qp->qp_num & 0xff); /* soon it wraps */
}

static void connect_peer_qp(struct peer *peer, const struct peer_opts *opts,
			    uint32_t gid)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = PEER_ACCESS,
		.path_mtu = opts->mtu,
		.dest_qp_num = peer->other.qpn,
		.rq_psn = peer->other.psn & 0xffffff,
		.sq_psn = peer->card.psn & 0xffffff,
		.max_dest_rd_atomic = 16,
		.max_rd_atomic = 16,
		.min_rnr_timer = 12,
		.timeout = opts->timeout ? opts->timeout : 14,
		.retry_cnt = opts->retries ? opts->retries : 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .hop_limit = 64, .sgid_index = gid } },
	};

	memcpy(attr.ah_attr.grh.dgid.raw, peer->other.gid, sizeof(peer->other.gid));
	check_peer_call(peer,
			peer->control->modify_qp(peer->qp, &attr,
						 rc_mask(IBV_QPS_INIT)),
			"INIT");
	attr.qp_state = IBV_QPS_RTR;
	check_peer_call(peer,
			peer->control->modify_qp(peer->qp, &attr, rc_mask(IBV_QPS_RTR)),
			"RTR");
	attr.qp_state = IBV_QPS_RTS;
	check_peer_call(peer,
			peer->control->modify_qp(peer->qp, &attr, rc_mask(IBV_QPS_RTS)),
			"RTS");
}

void peer_parse(char *text, struct peer_opts *opts)
{
	char *netns = strchr(text, '@'), *value;

	if (netns)
		*netns++ = '\0';
	opts->netns = netns;
	value = strchr(text, '=');
	if (value)
		*value++ = '\0';
	if (!strcmp(text, "soft"))
		opts->soft = value ? value : "";
	else
		opts->devices = value;
}

static void enter_netns(const struct peer *peer, const char *netns)
{
	char path[128];
	int fd;

	if (!netns)
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		peer_fail(peer, "cannot enter %s", path);
	close(fd);
}

void peer_open_ctx(struct peer *peer, const struct peer_opts *opts)
{
	struct snt_ctx_opts ctx_opts = {
		.size = sizeof(ctx_opts),
		.soft = opts->soft ? SNT_SOFT_ONLY : SNT_SOFT_NEVER,
		.soft_addresses = opts->soft && *opts->soft ? opts->soft : NULL,
		.devices = opts->devices,
	};

	enter_netns(peer, opts->netns);
	check_peer_call(peer, snt_ctx_create(&ctx_opts, &peer->ctx), "open");
}

void peer_open(struct peer *peer, const struct peer_opts *opts)
{
	struct snt_device *device;
	struct peer_card ours;
	uint32_t gid;

	peer_open_ctx(peer, opts);
	device = snt_ctx_device(peer->ctx, 0);
	find_peer_gid(peer, device, opts->ipv6, &gid);
	make_peer_qp(peer, device);
	ours = peer->card;
	peer_swap(peer, &ours, &peer->other, sizeof(ours));
	connect_peer_qp(peer, opts, gid);
	peer_meet(peer);
}

void peer_close(struct peer *peer)
{
	check_peer_call(peer, peer->control->destroy_qp(peer->qp), "destroy the QP");
	check_peer_call(peer, peer->control->destroy_cq(peer->cq), "destroy the CQ");
	check_peer_call(peer, peer->control->destroy_channel(peer->channel), "channel");
	check_peer_call(peer, peer->control->dereg_mr(peer->mr), "deregister");
	check_peer_call(peer, snt_ctx_destroy(peer->ctx), "close");
	free(peer->bytes);
}

void peer_post(struct peer *peer, enum ibv_wr_opcode opcode, uint64_t local,
	       uint64_t remote, uint32_t length, uint64_t add)
{
	struct ibv_sge sge = { (uintptr_t)peer->bytes + local, length, peer->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = local,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.imm_data = htobe32(length),
	};
	int ret;

	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	    opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = peer->other.addr + remote;
		wr.wr.atomic.rkey = peer->other.key;
		wr.wr.atomic.compare_add = add;
		wr.wr.atomic.swap = add * 3;
	} else {
		wr.wr.rdma.remote_addr = peer->other.addr + remote;
		wr.wr.rdma.rkey = peer->other.key;
	}
	ret = ibv_post_send(peer->qp, &wr, &bad);
	if (ret)
		peer_fail(peer, "post: %s", strerror(ret));
}

void peer_post_recv(struct peer *peer, uint64_t local, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)peer->bytes + local, length, peer->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = local, .sg_list = &sge, .num_sge = 1 };
	int ret = ibv_post_recv(peer->qp, &wr, &bad);

	if (ret)
		peer_fail(peer, "receive: %s", strerror(ret));
}

static void wait_for_event(struct peer *peer)
{
	struct pollfd fd = { .fd = peer->channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	int ready = poll(&fd, 1, WAIT_MS);

	if (ready != 1)
		peer_fail(peer, "nothing came within %d s", WAIT_MS / 1000);
	check_peer_call(peer, peer->control->get_cq_event(peer->channel, &cq, &context),
			"event");
	peer->control->ack_cq_events(cq, 1);
}

struct ibv_wc peer_wait(struct peer *peer)
{
	struct ibv_wc wc;

	for (;;) {
		for (unsigned i = 0; i < SPINS; i++)
			if (ibv_poll_cq(peer->cq, 1, &wc) == 1)
				return wc;
		if (ibv_req_notify_cq(peer->cq, 0))
			peer_fail(peer, "cannot be notified");
		if (ibv_poll_cq(peer->cq, 1, &wc) == 1)
			return wc;
		wait_for_event(peer);
	}
}

struct ibv_wc peer_wait_good(struct peer *peer)
{
	struct ibv_wc wc = peer_wait(peer);

	if (wc.status)
		peer_fail(peer, "completion: %s", ibv_wc_status_str(wc.status));
	return wc;
}

static uint8_t byte_at(size_t at, unsigned seed)
{
	return (at * 2654435761u >> 13) + seed * 37 + at;
}

void peer_fill(uint8_t *bytes, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = byte_at(i, seed);
}

bool peer_filled(const uint8_t *bytes, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != byte_at(i, seed))
			return false;
	return true;
}
