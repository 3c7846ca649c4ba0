/* SPDX-License-Identifier: MIT */
/*
 * Soft devices whose packets move in a thread of their own, while the program posts,
 * polls and sleeps in another: all that is between them is the driver's lock.
 */
#include "lib/test.h"

#include <pthread.h>

#include "dev/soft/device.h"

#define ROUNDS 2000
#define LENGTH 5000u
#define ACCESS                                                                       \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

enum {
	A,
	B,
	ENDS
};

struct end {
	struct snt__soft_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t bytes[2 * LENGTH];
};

struct world {
	pthread_mutex_t lock;
	pthread_cond_t kicked;
	pthread_t thread;
	unsigned kicks;
	bool over;
	unsigned random;
	struct end end[ENDS];
};

static const struct snt_control *control;

static void driver_random(void *arg, void *buffer, size_t length)
{
	struct world *world = arg;
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((world->random = world->random * 69069 + 1) >> 16);
}

static void driver_lock(void *arg)
{
	pthread_mutex_lock(&((struct world *)arg)->lock);
}

static void driver_unlock(void *arg)
{
	pthread_mutex_unlock(&((struct world *)arg)->lock);
}

static void driver_kick(void *arg)
{
	struct world *world = arg;

	pthread_mutex_lock(&world->lock);
	world->kicks++;
	pthread_cond_signal(&world->kicked);
	pthread_mutex_unlock(&world->lock);
}

static const struct snt__soft_driver driver = {
	.random = driver_random,
	.lock = driver_lock,
	.unlock = driver_unlock,
	.kick = driver_kick,
};

/* Nothing is lost, so that time need not pass. */
static bool shuttle(struct world *world, unsigned from)
{
	static struct snt__soft_packet packets[16];
	static uint8_t bytes[SNT__WIRE_HEADER_MAX + 4096 + 4];
	unsigned count = snt__soft_output(world->end[from].device, packets, 16, 0);

	for (unsigned i = 0; i < count; i++) {
		const struct snt__soft_packet *packet = &packets[i];
		size_t length = packet->header_length;

		memcpy(bytes, packet->header, length);
		for (unsigned j = 0; j < packet->payload_count; j++) {
			memcpy(bytes + length, packet->payload[j].iov_base,
			       packet->payload[j].iov_len);
			length += packet->payload[j].iov_len;
		}
		memset(bytes + length, 0, 3);
		length += snt__wire_pad(packet->payload_length);
		snt__soft_input(world->end[!from].device, packet->path, bytes, length,
				0);
	}
	return count;
}

static void *move_packets(void *arg)
{
	struct world *world = arg;

	pthread_mutex_lock(&world->lock);
	while (!world->over) {
		bool moved = shuttle(world, A);

		moved |= shuttle(world, B);
		if (moved) {
			/* Others want to have a turn. */
			pthread_mutex_unlock(&world->lock);
			pthread_mutex_lock(&world->lock);
		} else if (!world->kicks) {
			pthread_cond_wait(&world->kicked, &world->lock);
		} else {
			world->kicks = 0;
		}
	}
	pthread_mutex_unlock(&world->lock);
	return NULL;
}

static void open_end(struct world *world, unsigned which)
{
	struct end *end = &world->end[which];
	const uint8_t gid[1][16] = { { [10] = 0xff, 0xff, 10, 0, 0, which + 1 } };
	struct snt__soft_config config = {
		.name = "soft",
		.driver = &driver,
		.driver_arg = world,
		.gids = gid,
		.gid_count = 1,
	};
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC,
					 .cap = { 16, 16, 1, 1, 0 } };

	assert_int_equal(snt__soft_device_create(&config, &end->device), 0);
	end->context = snt__soft_device_context(end->device);
	assert_int_equal(control->alloc_pd(end->context, &end->pd), 0);
	assert_int_equal(control->create_channel(end->context, &end->channel), 0);
	assert_int_equal(control->create_cq(end->context, 64, NULL, end->channel, 0,
					    &end->cq),
			 0);
	assert_int_equal(control->reg_mr(end->pd, end->bytes, sizeof(end->bytes),
					 ACCESS, &end->mr),
			 0);
	init.send_cq = init.recv_cq = end->cq;
	assert_int_equal(control->create_qp(end->pd, &init, &end->qp), 0);
}

static void connect_end(struct world *world, unsigned which)
{
	struct ibv_qp *qp = world->end[which].qp;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = world->end[!which].qp->qp_num,
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.timeout = 20,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1,
			     .grh.dgid.raw = { [10] = 0xff,
					       0xff,
					       10,
					       0,
					       0,
					       !which + 1 } },
	};

	assert_int_equal(control->modify_qp(qp, &attr,
					    IBV_QP_STATE | IBV_QP_PKEY_INDEX |
						    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
			 0);
	attr.qp_state = IBV_QPS_RTR;
	assert_int_equal(control->modify_qp(qp, &attr,
					    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
						    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						    IBV_QP_MAX_DEST_RD_ATOMIC |
						    IBV_QP_MIN_RNR_TIMER),
			 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(control->modify_qp(qp, &attr,
					    IBV_QP_STATE | IBV_QP_TIMEOUT |
						    IBV_QP_RETRY_CNT |
						    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
						    IBV_QP_MAX_QP_RD_ATOMIC),
			 0);
}

static void post(struct world *world, unsigned round)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_RDMA_WRITE,
						      IBV_WR_RDMA_READ,
						      IBV_WR_RDMA_WRITE };
	struct end *a = &world->end[A], *b = &world->end[B];
	struct ibv_sge sge = { (uintptr_t)a->bytes, LENGTH, a->mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = round,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcodes[round % 3],
		.send_flags = IBV_SEND_SIGNALED,
	};

	wr.wr.rdma.remote_addr = (uintptr_t)b->bytes + LENGTH;
	wr.wr.rdma.rkey = b->mr->rkey;
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
}

/* Polls, and sleeps on the channel when there is nothing. */
static struct ibv_wc wait_for_one(struct end *end)
{
	struct ibv_cq *cq;
	void *context;
	struct ibv_wc wc;

	for (;;) {
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return wc;
		assert_int_equal(ibv_req_notify_cq(end->cq, 0), 0);
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return wc;
		assert_int_equal(control->get_cq_event(end->channel, &cq, &context), 0);
		assert_ptr_equal(cq, end->cq);
		control->ack_cq_events(cq, 1);
	}
}

static void close_end(struct end *end)
{
	assert_int_equal(control->destroy_qp(end->qp), 0);
	assert_int_equal(control->destroy_cq(end->cq), 0);
	assert_int_equal(control->destroy_channel(end->channel), 0);
	assert_int_equal(control->dereg_mr(end->mr), 0);
	assert_int_equal(control->dealloc_pd(end->pd), 0);
	assert_int_equal(snt__soft_device_destroy(end->device), 0);
}

static void packets_move_elsewhere(void **state)
{
	static struct world world = { .lock = PTHREAD_MUTEX_INITIALIZER,
				      .kicked = PTHREAD_COND_INITIALIZER };

	(void)state;
	control = snt__soft_control();
	open_end(&world, A);
	open_end(&world, B);
	assert_int_equal(pthread_create(&world.thread, NULL, move_packets, &world), 0);
	connect_end(&world, A);
	connect_end(&world, B);
	for (unsigned round = 0; round < ROUNDS; round += 4) {
		for (unsigned i = 0; i < 4; i++)
			post(&world, round + i);
		for (unsigned i = 0; i < 4; i++) {
			struct ibv_wc wc = wait_for_one(&world.end[A]);

			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			assert_int_equal(wc.wr_id, round + i);
		}
	}
	pthread_mutex_lock(&world.lock);
	world.over = true;
	pthread_cond_signal(&world.kicked);
	pthread_mutex_unlock(&world.lock);
	pthread_join(world.thread, NULL);
	close_end(&world.end[A]);
	close_end(&world.end[B]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(packets_move_elsewhere) };

	return cmocka_run_group_tests_name("soft_threads", tests, NULL, NULL);
}
