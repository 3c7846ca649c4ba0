/* SPDX-License-Identifier: MIT */
/* The scripted device: devices, memory, shared receive queues, and what is left over. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/devices/scripted_pair.h"

static void ports_go_down_and_up(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_port_attr attr;

	pair_post_write(p, 0, 1);
	scripted_set_port_state(there->device, IBV_PORT_DOWN);
	pair_expect_async(p, there, IBV_EVENT_PORT_ERR);
	assert_int_equal(p->control->query_port(there->context, 1, &attr), 0);
	assert_int_equal(attr.state, IBV_PORT_DOWN);
	assert_int_equal(ibv_query_port(there->context, 1, &attr), 0);
	assert_int_equal(p->control->query_port(there->context, 2, &attr), -EINVAL);
	assert_int_equal(scripted_land(p->side[0].qp[0]), -ENETDOWN);
	scripted_set_port_state(there->device, IBV_PORT_INIT);
	assert_false(pair_readable(there->context->async_fd));
	scripted_set_port_state(there->device, IBV_PORT_ACTIVE);
	pair_expect_async(p, there, IBV_EVENT_PORT_ACTIVE);
	assert_int_equal(scripted_land(p->side[0].qp[0]), 0);
}

static void gids_are_distinct_and_can_change(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_gid_entry gid[2];
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(p->control->query_gid(p->side[i].context, 1, 0,
						       &gid[i]),
				 0);
	assert_memory_not_equal(&gid[0].gid, &gid[1].gid, sizeof(gid[0].gid));
	assert_int_equal(gid[0].gid_type, IBV_GID_TYPE_ROCE_V2);
	assert_int_equal(p->control->query_gid(here->context, 1, 1, &gid[0]), -ENODATA);
	assert_int_equal(p->control->query_gid(here->context, 1, SCRIPTED_GID_MAX,
					       &gid[0]),
			 -EINVAL);
	scripted_set_gid(p->side[1].device, 0, NULL);
	scripted_set_gid(p->side[1].device, 5, &gid[1]);
	pair_expect_async(p, &p->side[1], IBV_EVENT_GID_CHANGE);
	pair_post_write(p, 0, 1);
	assert_int_equal(scripted_complete(here->qp[0], IBV_WC_SUCCESS), 0);
	scripted_set_gid(here->device, 0, NULL);
	pair_post_write(p, 0, 2);
	assert_int_equal(scripted_complete(here->qp[0], IBV_WC_SUCCESS),
			 IBV_WC_LOC_QP_OP_ERR);
}

static void given_gids_replace_the_default(void **state)
{
	struct ibv_gid_entry gids[3] = {
		[0] = { .gid.raw = { 0xfe, 0x80, [15] = 1 },
			.gid_type = IBV_GID_TYPE_ROCE_V1 },
		[2] = { .gid.raw = { 0x20, 0x01, [15] = 9 },
			.gid_type = IBV_GID_TYPE_ROCE_V2,
			.ndev_ifindex = 4 },
	};
	struct scripted_device_opts opts = { .gids = gids, .gid_count = 3 };
	struct scripted_fabric *fabric = scripted_fabric_create(0);
	struct snt_adopted adopted;
	struct ibv_gid_entry seen;

	(void)state;
	adopted = scripted_adopted(scripted_device_create(fabric, &opts));
	assert_int_equal(adopted.control->query_gid(adopted.context, 1, 2, &seen), 0);
	assert_int_equal(seen.gid.raw[15], 9);
	assert_int_equal(seen.gid_index, 2);
	assert_int_equal(seen.port_num, 1);
	assert_int_equal(seen.ndev_ifindex, 4);
	assert_int_equal(adopted.control->query_gid(adopted.context, 1, 1, &seen),
			 -ENODATA);
	opts.gid_count = SCRIPTED_GID_MAX + 1;
	assert_null(scripted_device_create(fabric, &opts));
	assert_int_equal(scripted_fabric_destroy(fabric), 0);
}

static void options_shape_the_device(void **state)
{
	struct scripted_device_opts opts = {
		.name = "shaped",
		.mtu = IBV_MTU_512,
		.port_state = IBV_PORT_INIT,
		.link_layer = IBV_LINK_LAYER_INFINIBAND,
		.numa_node = 3,
		.qp_wr_max = 100,
		.round_up = true,
		.qp_max = 2,
	};
	struct pair *p = calloc(1, sizeof(*p));
	struct side *side = &p->side[0];
	struct ibv_qp_init_attr init;
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct ibv_qp *qp;
	int node;

	(void)state;
	p->fabric = scripted_fabric_create(0);
	pair_open_side(p, side, &opts);
	assert_string_equal(scripted_adopted(side->device).name, "shaped");
	p->control->query_device(side->context, &device);
	assert_int_equal(device.max_qp_wr, 100);
	p->control->query_port(side->context, 1, &port);
	assert_int_equal(port.active_mtu, IBV_MTU_512);
	assert_int_equal(port.state, IBV_PORT_INIT);
	assert_int_equal(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	p->control->query_numa_node(side->context, &node);
	assert_int_equal(node, 3);

	init = pair_init_attr(side);
	assert_int_equal(p->control->create_qp(side->pd, &init, &qp), -ENOMEM);
	p->control->destroy_qp(side->qp[0]);
	init.cap.max_send_wr = 101;
	assert_int_equal(p->control->create_qp(side->pd, &init, &qp), -EINVAL);
	init.cap.max_send_wr = 33;
	init.cap.max_recv_wr = 65;
	assert_int_equal(p->control->create_qp(side->pd, &init, &qp), 0);
	assert_int_equal(init.cap.max_send_wr, 64);
	assert_int_equal(init.cap.max_recv_wr, 100);
	assert_int_equal(scripted_fabric_destroy(p->fabric), 5);
	free(p);
}

static void memory_registration_rules(void **state)
{
	struct pair *p = *state;
	struct side *here = &p->side[0];
	struct ibv_mr *mr;

	assert_int_equal(p->control->reg_mr(here->pd, here->buffer, 0, 0, &mr),
			 -EINVAL);
	assert_int_equal(p->control->reg_mr(here->pd, here->buffer, SIZE_MAX, 0, &mr),
			 -EINVAL);
	assert_int_equal(p->control->reg_mr(here->pd, here->buffer, 8,
					    IBV_ACCESS_REMOTE_WRITE, &mr),
			 -EINVAL);
}

static void dmabuf_is_named_by_its_iova(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_sge sge = pair_sge(&p->side[0], 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);
	int fd = memfd_create("dmabuf", MFD_CLOEXEC);
	unsigned char seen[8];
	struct ibv_mr *mr;

	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(p->control->reg_dmabuf_mr(there->pd, fd, 4100, 64, 0x1000,
						   PAIR_ACCESS, &mr),
			 0);
	wr.wr.rdma.remote_addr = 0x1002;
	wr.wr.rdma.rkey = mr->rkey;
	pair_post(p->side[0].qp[0], &wr);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	assert_int_equal(pread(fd, seen, sizeof(seen), 4102), sizeof(seen));
	assert_memory_equal(seen, p->side[0].buffer, sizeof(seen));
	p->control->dereg_mr(mr);
	close(fd);
}

static void dmabuf_may_be_missing(void **state)
{
	struct scripted_device_opts opts = { .no_dmabuf = true };
	struct pair *p = pair_open(&opts);
	struct ibv_mr *mr;

	(void)state;
	assert_int_equal(p->control->reg_dmabuf_mr(p->side[0].pd, 0, 0, 8, 0, 0, &mr),
			 -EOPNOTSUPP);
	pair_close(p);
}

static void srq_feeds_its_qps(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 2, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 1 }, seen;
	struct ibv_qp_init_attr init = pair_init_attr(there);
	struct ibv_recv_wr recv = { .wr_id = 70 }, *bad;
	struct ibv_sge sge = pair_sge(there, 0, 16);
	struct ibv_srq *srq;

	recv.sg_list = &sge;
	recv.num_sge = 1;
	assert_int_equal(p->control->create_srq(there->pd, &srq_attr, &srq), 0);
	init.srq = srq;
	p->control->destroy_qp(there->qp[0]);
	assert_int_equal(p->control->create_qp(there->pd, &init, &there->qp[0]), 0);
	assert_int_equal(init.cap.max_recv_wr, 0);
	pair_connect(p, there->qp[0], p->side[0].qp[0]);
	assert_int_equal(pair_post_recv(there, there->qp[0], 1, 4), EINVAL);
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	assert_int_equal(p->control->modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	assert_int_equal(p->control->query_srq(srq, &seen), 0);
	assert_int_equal(seen.max_wr, 2);
	assert_int_equal(seen.srq_limit, 1);
	pair_post_simple(p, p->side[0].qp[0], 1, IBV_WR_SEND, 0);
	assert_int_equal(scripted_complete(p->side[0].qp[0], IBV_WC_SUCCESS), 0);
	pair_expect_wc(there, 70, IBV_WC_SUCCESS);
	pair_expect_async(p, there, IBV_EVENT_SRQ_LIMIT_REACHED);
	p->control->query_srq(srq, &seen);
	assert_int_equal(seen.srq_limit, 0);

	/* Its receives are not flushed with the QP. */
	assert_int_equal(ibv_post_srq_recv(srq, &recv, &bad), 0);
	assert_int_equal(p->control->destroy_srq(srq), -EBUSY);
	pair_to_state(p, there->qp[0], IBV_QPS_ERR);
	pair_expect_empty(there);
	pair_expect_async(p, there, IBV_EVENT_QP_LAST_WQE_REACHED);
	p->control->destroy_qp(there->qp[0]);
	there->qp[0] = NULL;
	assert_int_equal(p->control->destroy_srq(srq), 0);
}

/* A QP that is its own peer, and refuses itself, is flushed just once. */
static void self_loop_dies_once(void **state)
{
	struct pair *p = *state;
	struct side *there = &p->side[1];
	struct ibv_qp *qp = there->qp[0];
	struct ibv_sge sge = pair_sge(there, 0, 8);
	struct ibv_send_wr wr = pair_wr(p, &sge, 1, IBV_WR_RDMA_WRITE);

	pair_to_state(p, qp, IBV_QPS_RESET);
	pair_connect(p, qp, qp);
	pair_post(qp, &wr);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), 0);
	pair_expect_wc(there, 1, IBV_WC_SUCCESS);
	wr.wr.rdma.rkey = 0;
	pair_post(qp, &wr);
	assert_int_equal(scripted_complete(qp, IBV_WC_SUCCESS), IBV_WC_REM_ACCESS_ERR);
	pair_expect_wc(there, 1, IBV_WC_WR_FLUSH_ERR);
	pair_expect_empty(there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_PAIR(ports_go_down_and_up),
		WITH_PAIR(gids_are_distinct_and_can_change),
		cmocka_unit_test(given_gids_replace_the_default),
		cmocka_unit_test(options_shape_the_device),
		WITH_PAIR(memory_registration_rules),
		WITH_PAIR(dmabuf_is_named_by_its_iova),
		cmocka_unit_test(dmabuf_may_be_missing),
		WITH_PAIR(srq_feeds_its_qps),
		WITH_PAIR(self_loop_dies_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
