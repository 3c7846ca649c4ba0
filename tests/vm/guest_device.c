/* SPDX-License-Identifier: MIT */
#include "vm/guest_device.h"

#include "lib/test.h"

#include <arpa/inet.h>
#include <poll.h>

#define WAIT_MS 20000
#define LENGTH	64
#define INTO	128 /* where in the buffer a message goes */

struct guest_device guest;

static struct snt_mem *mem;
static char buffer[256];

void guest_open(void)
{
	struct snt_gid_info gid = { .size = sizeof(gid) };
	struct snt_device_info info = { .size = sizeof(info) };

	assert_success(snt_ctx_create(NULL, &guest.ctx));
	guest.device = snt_ctx_device(guest.ctx, 0);
	guest.control = snt_device_control(guest.device);
	assert_success(snt_mem_register(guest.ctx, buffer, sizeof(buffer),
					SNT_ACCESS_LOCAL_WRITE, &mem));
	assert_success(snt_device_query(guest.device, &info));
	for (unsigned i = 0; !snt_device_query_gid(guest.device, i, &gid); i++)
		if ((int32_t)gid.index == info.gid_index)
			break;
	guest.address.sin_family = AF_INET;
	assert_int_equal(inet_pton(AF_INET, gid.text, &guest.address.sin_addr), 1);
}

int guest_close(void)
{
	assert_success(snt_mem_release(mem));
	return snt_ctx_destroy(guest.ctx);
}

void guest_qp_create(struct guest_qp *qp)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 4,
			 .max_recv_wr = 4,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	assert_success(guest.control->create_cq(snt_device_context(guest.device), 8,
						NULL, NULL, 0, &qp->cq));
	attr.send_cq = qp->cq;
	attr.recv_cq = qp->cq;
	assert_success(
		guest.control->create_qp(snt_device_pd(guest.device), &attr, &qp->qp));
}

void guest_qp_destroy(struct guest_qp *qp)
{
	if (qp->qp)
		assert_success(guest.control->destroy_qp(qp->qp));
	if (qp->cq)
		assert_success(guest.control->destroy_cq(qp->cq));
	*qp = (struct guest_qp){ 0 };
}

static struct ibv_wc next_completion(struct guest_qp *qp)
{
	struct ibv_wc wc = { 0 };

	for (int i = 0; i < WAIT_MS; i++) {
		int n = ibv_poll_cq(qp->cq, 1, &wc);

		assert_true(n >= 0);
		if (n)
			return wc;
		poll(NULL, 0, 1);
	}
	fail_msg("no completion");
	return wc;
}

void guest_qp_send(struct guest_qp *from, struct guest_qp *to)
{
	struct ibv_recv_wr recv = { .num_sge = 1 }, *bad_recv;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND,
				    .send_flags = IBV_SEND_SIGNALED,
				    .num_sge = 1 },
			   *bad_send;
	struct ibv_sge send_sge, recv_sge;
	struct ibv_wc wc;

	snprintf(buffer, LENGTH, "from QP %u", from->qp->qp_num);
	memset(buffer + INTO, 0, sizeof(buffer) - INTO);
	assert_success(snt_mem_sge(mem, 0, 0, LENGTH, &send_sge));
	assert_success(snt_mem_sge(mem, 0, INTO, LENGTH, &recv_sge));
	recv.sg_list = &recv_sge;
	send.sg_list = &send_sge;
	assert_int_equal(ibv_post_recv(to->qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(from->qp, &send, &bad_send), 0);
	assert_int_equal(next_completion(from).status, IBV_WC_SUCCESS);
	wc = next_completion(to);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, LENGTH);
	assert_string_equal(buffer, buffer + INTO);
}
