/* SPDX-License-Identifier: MIT */
/* What a device says of itself and what it grants. */
#include "kit.h"

static void port(struct scene *scene)
{
	static const char *const gid_types[] = { "IB", "RoCEv1", "RoCEv2" };
	struct ibv_port_attr attr = { 0 };
	struct ibv_gid_entry gid = { 0 };
	const struct kit *kit = scene->kit;
	int ret;

	ret = scene->control->query_port(kit->context, kit->info.port, &attr);
	if (ret) {
		say(scene, "query_port %s", control_name(ret));
		return;
	}
	say(scene, "%s", attr.state == IBV_PORT_ACTIVE ? "active" : "not active");
	say(scene, "MTU %d of %d", 128 << attr.active_mtu, 128 << attr.max_mtu);
	say(scene, "%s",
	    attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand");
	say(scene, "messages up to %u bytes", attr.max_msg_sz);
	ret = scene->control->query_gid(kit->context, kit->info.port, kit->gid.index,
					&gid);
	say(scene, "GID type %s", ret ? control_name(ret) : gid_types[gid.gid_type]);
}

static void empty_gid(struct scene *scene)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	const struct kit *kit = scene->kit;
	int ret;

	if (scene->control->query_port(kit->context, kit->info.port, &port))
		return;
	ret = scene->control->query_gid(kit->context, kit->info.port,
					port.gid_tbl_len - 1, &gid);
	say(scene, "last entry %s", control_name(ret));
	ret = scene->control->query_gid(kit->context, kit->info.port, port.gid_tbl_len,
					&gid);
	say(scene, "past the end %s", control_name(ret));
	ret = scene->control->query_port(kit->context, kit->info.port + 1, &port);
	say(scene, "no such port %s", control_name(ret));
}

static void limits(struct scene *scene)
{
	struct ibv_device_attr attr;
	int ret = scene->control->query_device(scene->kit->context, &attr);

	if (ret) {
		say(scene, "query_device %s", control_name(ret));
		return;
	}
	say(scene, "WRs %d", attr.max_qp_wr);
	say(scene, "SGEs %d", attr.max_sge);
	say(scene, "CQEs %d", attr.max_cqe);
	say(scene, "READs out %d in %d", attr.max_qp_init_rd_atom, attr.max_qp_rd_atom);
	say(scene, "SRQ WRs %d SGEs %d", attr.max_srq_wr, attr.max_srq_sge);
	say(scene, "atomics %s", attr.atomic_cap == IBV_ATOMIC_NONE ? "no" : "yes");
}

/* Asks, says what was granted, and gives it back. */
static void ask_qp(struct scene *scene, struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .send_cq = scene->cq[A],
					 .recv_cq = scene->cq[A],
					 .cap = cap };
	struct ibv_qp_init_attr queried = { 0 };
	struct ibv_qp_attr attr = { 0 };
	int ret = scene->control->create_qp(scene->pd, &init, &scene->qp[A]);

	if (ret) {
		say(scene, "%u: %s", cap.max_send_wr, control_name(ret));
		return;
	}
	say(scene, "%u: %u sends, %u receives", cap.max_send_wr, init.cap.max_send_wr,
	    init.cap.max_recv_wr);
	ret = scene->control->query_qp(scene->qp[A], &attr, IBV_QP_CAP, &queried);
	if (ret)
		say(scene, "query_qp %s", control_name(ret));
	else if (queried.cap.max_send_wr != init.cap.max_send_wr ||
		 queried.cap.max_recv_wr != init.cap.max_recv_wr)
		say_more(scene, "(query_qp: %u, %u)", queried.cap.max_send_wr,
			 queried.cap.max_recv_wr);
	drop_qp(scene, A);
}

static void depths(struct scene *scene)
{
	static const unsigned asked[] = { 0, 1, 2, 10, 64, 127, 128 };

	if (!make_cq(scene, A, 16, NULL))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++) {
		struct ibv_qp_cap cap = { .max_send_wr = asked[i],
					  .max_recv_wr = asked[i],
					  .max_send_sge = 1,
					  .max_recv_sge = 1 };

		ask_qp(scene, cap);
	}
}

static void too_deep(struct scene *scene)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };
	struct ibv_device_attr attr;
	int ret;

	if (!make_cq(scene, A, 16, NULL) ||
	    scene->control->query_device(scene->kit->context, &attr))
		return;
	init.send_cq = init.recv_cq = scene->cq[A];
	init.cap.max_send_wr = attr.max_qp_wr + 1;
	init.cap.max_send_sge = 1;
	ret = scene->control->create_qp(scene->pd, &init, &scene->qp[A]);
	say(scene, "WRs %s", control_name(ret));
	drop_qp(scene, A);
	init.cap.max_send_wr = 1;
	init.cap.max_send_sge = attr.max_sge + 1;
	ret = scene->control->create_qp(scene->pd, &init, &scene->qp[A]);
	say(scene, "SGEs %s", control_name(ret));
	drop_qp(scene, A);
	ret = scene->control->create_cq(scene->kit->context, attr.max_cqe + 1, NULL,
					NULL, 0, &scene->cq[B]);
	say(scene, "CQEs %s", control_name(ret));
}

static void inline_sizes(struct scene *scene)
{
	static const unsigned asked[] = { 0, 1, 64, 256, 512, 1024, 65536 };

	if (!make_cq(scene, A, 16, NULL))
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++) {
		struct ibv_qp_init_attr init = {
			.qp_type = IBV_QPT_RC,
			.send_cq = scene->cq[A],
			.recv_cq = scene->cq[A],
			.cap = { .max_send_wr = 4,
				 .max_send_sge = 1,
				 .max_inline_data = asked[i] },
		};
		int ret = scene->control->create_qp(scene->pd, &init, &scene->qp[A]);

		if (ret)
			say(scene, "%u: %s", asked[i], control_name(ret));
		else
			say(scene, "%u: %u", asked[i], init.cap.max_inline_data);
		drop_qp(scene, A);
	}
}

static void cq_depths(struct scene *scene)
{
	static const int asked[] = { 0, 1, 10, 64, 1000 };

	for (unsigned i = 0; i < ARRAY_SIZE(asked); i++) {
		int ret = scene->control->create_cq(scene->kit->context, asked[i], NULL,
						    NULL, 0, &scene->cq[A]);

		if (ret)
			say(scene, "%d: %s", asked[i], control_name(ret));
		else
			say(scene, "%d: %d", asked[i], scene->cq[A]->cqe);
		drop_cq(scene, A);
	}
}

const struct conformance_case cases_device[] = {
	{ "port", "what the port says of itself", port },
	{ "port-edges", "GID table entry that is empty, past the end; port 2",
	  empty_gid },
	{ "limits", "what the device says it can do at most", limits },
	{ "qp-depths", "depth asked for: granted", depths },
	{ "too-deep", "one more than the limits say", too_deep },
	{ "inline-sizes", "inline bytes asked for: granted", inline_sizes },
	{ "cq-depths", "CQ depth asked for: granted", cq_depths },
	{ 0 },
};
