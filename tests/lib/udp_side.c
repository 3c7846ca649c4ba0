/* SPDX-License-Identifier: MIT */
#include "lib/udp_side.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "lib/loopback.h"
#include "lib/patience.h"
#include "lib/rc.h"

uint8_t side_timeout = SIDE_PATIENT;
static unsigned open_sides;

void sides_leave_failed(void)
{
	if (open_sides)
		loopback_move();
	open_sides = 0;
}

struct snt__udp_address side_address(unsigned number)
{
	struct snt__udp_address address = { .ip_mtu = 65536 };

	snt__udp_loopback_gid(0, address.gid);
	loopback_address(number, address.gid + 12);
	return address;
}

void side_open(struct side *side, unsigned number, const struct snt__udp_opts *opts)
{
	struct snt__udp_address address = side_address(number);
	struct snt__udp_opts all = opts ? *opts : (struct snt__udp_opts){ 0 };
	char name[16];

	snprintf(name, sizeof(name), "side%u", number);
	all.name = name;
	all.address = &address;
	memset(side, 0, sizeof(*side));
	assert_success(snt__udp_device_create(&all, &side->device));
	open_sides++;
	side->control = snt__soft_control();
	side->context = snt__soft_device_context(side->device->core);
	side->bytes = calloc(1, SIDE_BYTES);
	assert_non_null(side->bytes);
	assert_success(side->control->alloc_pd(side->context, &side->pd));
	assert_success(side->control->create_channel(side->context, &side->channel));
	assert_success(side->control->reg_mr(side->pd, side->bytes, SIDE_BYTES,
					     SIDE_ACCESS, &side->mr));
	assert_success(side->control->create_cq(side->context, 256, NULL, side->channel,
						0, &side->cq));
	side_make_qp(side);
}

void side_make_qp(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { SIDE_DEPTH, SIDE_DEPTH, 1, 1, 0 },
		.sq_sig_all = 1,
		.send_cq = side->cq,
		.recv_cq = side->cq,
	};

	assert_success(side->control->create_qp(side->pd, &init, &side->qp));
}

void side_connect(struct side *side, const struct side *to, enum ibv_mtu mtu)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = SIDE_ACCESS,
		.path_mtu = mtu,
		.dest_qp_num = to->qp->qp_num,
		.max_dest_rd_atomic = 16,
		.max_rd_atomic = 16,
		.min_rnr_timer = 1,
		.timeout = side_timeout,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .grh.hop_limit = 64 },
	};

	memcpy(attr.ah_attr.grh.dgid.raw, to->device->address.gid, 16);
	assert_success(
		side->control->modify_qp(side->qp, &attr, rc_mask(IBV_QPS_INIT)));
	attr.qp_state = IBV_QPS_RTR;
	assert_success(side->control->modify_qp(side->qp, &attr, rc_mask(IBV_QPS_RTR)));
	attr.qp_state = IBV_QPS_RTS;
	assert_success(side->control->modify_qp(side->qp, &attr, rc_mask(IBV_QPS_RTS)));
}

void side_close(struct side *side)
{
	assert_success(side->control->destroy_qp(side->qp));
	assert_success(side->control->destroy_cq(side->cq));
	assert_success(side->control->destroy_channel(side->channel));
	assert_success(side->control->dereg_mr(side->mr));
	assert_success(side->control->dealloc_pd(side->pd));
	assert_success(snt__udp_device_destroy(side->device));
	open_sides--;
	free(side->bytes);
}

void sides_open(struct side side[2], const struct snt__udp_opts *opts)
{
	side_open(&side[0], 1, opts);
	side_open(&side[1], 2, opts);
	side_connect(&side[0], &side[1], IBV_MTU_4096);
	side_connect(&side[1], &side[0], IBV_MTU_4096);
}

void sides_close(struct side side[2])
{
	side_close(&side[0]);
	side_close(&side[1]);
}

/* Half of the memory goes out, the other comes in. */
void side_post(struct side *side, const struct side *to, enum ibv_wr_opcode opcode,
	       uint32_t length)
{
	bool read = opcode == IBV_WR_RDMA_READ;
	struct ibv_sge sge = { (uintptr_t)side->bytes + (read ? SIDE_BYTES / 2 : 0),
			       length, side->mr->lkey };
	struct ibv_send_wr *bad,
		wr = { .sg_list = &sge, .num_sge = 1, .opcode = opcode };

	wr.wr.rdma.remote_addr = (uintptr_t)to->bytes + (read ? 0 : SIDE_BYTES / 2);
	wr.wr.rdma.rkey = to->mr->rkey;
	assert_int_equal(ibv_post_send(side->qp, &wr, &bad), 0);
}

enum ibv_wc_status side_wait(struct side *side)
{
	uint64_t end = snt__udp_now() + patience_ns(30);
	struct ibv_wc wc;

	while (!ibv_poll_cq(side->cq, 1, &wc))
		if (snt__udp_now() > end)
			fail_msg("no completion came");
	return wc.status;
}

enum ibv_wc_status side_wait_event(struct side *side)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	assert_success(side->control->get_cq_event(side->channel, &cq, &context));
	side->control->ack_cq_events(cq, 1);
	assert_int_equal(ibv_poll_cq(side->cq, 1, &wc), 1);
	return wc.status;
}

void side_check(struct side *side, struct side *to, uint32_t length)
{
	static unsigned seed;
	uint8_t *there = to->bytes + SIDE_BYTES / 2;

	seed++;
	for (uint32_t i = 0; i < length; i++)
		side->bytes[i] = i * 7 + i / 251 + seed;
	side_post(side, to, IBV_WR_RDMA_WRITE, length);
	assert_int_equal(side_wait(side), IBV_WC_SUCCESS);
	/* The lock, for what its thread has written. */
	ibv_req_notify_cq(to->cq, 0);
	assert_memory_equal(side->bytes, there, length);
}

struct snt__soft_stats side_stats(struct side *side)
{
	struct snt__soft_stats stats;

	snt__udp_lock(side->device);
	stats = *snt__soft_device_stats(side->device->core);
	snt__udp_unlock(side->device);
	return stats;
}

struct snt__udp_send_stats side_sent(const struct side *side)
{
	struct snt__udp_send_stats stats;

	snt__udp_lock(side->device);
	stats = side->device->sender.stats;
	snt__udp_unlock(side->device);
	return stats;
}

bool side_naps(struct side *side)
{
	bool naps;

	snt__udp_lock(side->device);
	naps = snt__progress_naps(&side->device->progress);
	snt__udp_unlock(side->device);
	return naps;
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
	       (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* How often threads of devices have gone to sleep. */
static long voluntary_switches(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	long sum = 0;

	assert_non_null(tasks);
	while ((task = readdir(tasks))) {
		char path[300], line[128], name[32] = "";
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
		file = fopen(path, "r");
		while (file && fgets(line, sizeof(line), file)) {
			long count;

			sscanf(line, "Name: %31s", name);
			if (!strncmp(name, "side", 4) &&
			    sscanf(line, "voluntary_ctxt_switches: %ld", &count) == 1)
				sum += count;
		}
		if (file)
			fclose(file);
	}
	closedir(tasks);
	assert_true(sum > 0);
	return sum;
}

void sides_idle(void)
{
	const struct timespec second = { 1, 0 };
	unsigned tries = 0;
	double cpu;
	long before;

	do {
		assert_true(tries++ < 10);
		cpu = cpu_seconds();
		before = voluntary_switches();
		nanosleep(&second, NULL);
	} while (cpu_seconds() - cpu >= 0.01 || voluntary_switches() != before);
}

void side_put_to_sleep(struct side *side)
{
	snt__udp_thread_stop(side->device);
	side->device->over = false;
	side->device->send_long = UINT64_MAX;
	side->device->progress.owner = SNT__OWNER_POLLER;
	side->device->progress.thread = SNT__THREAD_NAPPING;
}

void side_wake_up(struct side *side)
{
	side->device->progress.owner = SNT__OWNER_THREAD;
	side->device->progress.thread = SNT__THREAD_AWAKE;
	side->device->progress.wake_at = 0;
	assert_success(snt__udp_thread_start(side->device, "side2"));
}

void side_take_request(struct side side[2])
{
	uint64_t before = side_stats(&side[1]).packets_in;
	struct ibv_wc wc;

	side_post(&side[0], &side[1], IBV_WR_RDMA_WRITE, 100);
	while (side_stats(&side[1]).packets_in == before)
		ibv_poll_cq(side[1].cq, 0, &wc);
}
