/* SPDX-License-Identifier: MIT */
/*
 * A program that uses verbs as NCCL does: it is not linked with libibverbs, but loads it, looks
 * each function up by version, asks /sys where the devices are, and moves data between two
 * processes over all soft devices at once: the receiver posts empty receives and writes into a
 * slot of the sender where the data goes to; the sender writes a part on each QP, with an
 * immediate.
 *
 * usage: as_nccl LIBRARY
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/patience.h"

#undef ibv_query_port
#undef ibv_reg_mr

#define DEVICES_MAX 8
#define MESSAGE_MAX (8u << 20)
#define CHUNK	    128 /* parts are multiples of it */
#define CQ_DEPTH    64
#define RO_OPTIONAL IBV_ACCESS_RELAXED_ORDERING

#define CHECK(condition)                                                         \
	do {                                                                     \
		if (!(condition)) {                                              \
			fprintf(stderr, "%s: line %d: %s: %s\n", side, __LINE__, \
				#condition, strerror(errno));                    \
			_exit(1);                                                \
		}                                                                \
	} while (0)

static const char *side = "both";

/*
 * Functions
 */

#define REQUIRED(X)             \
	X(ibv_get_device_list)  \
	X(ibv_free_device_list) \
	X(ibv_get_device_name)  \
	X(ibv_open_device)      \
	X(ibv_close_device)     \
	X(ibv_get_async_event)  \
	X(ibv_ack_async_event)  \
	X(ibv_query_device)     \
	X(ibv_query_port)       \
	X(ibv_query_gid)        \
	X(ibv_query_qp)         \
	X(ibv_alloc_pd)         \
	X(ibv_dealloc_pd)       \
	X(ibv_reg_mr)           \
	X(ibv_dereg_mr)         \
	X(ibv_create_cq)        \
	X(ibv_destroy_cq)       \
	X(ibv_create_qp)        \
	X(ibv_modify_qp)        \
	X(ibv_destroy_qp)       \
	X(ibv_fork_init)        \
	X(ibv_event_type_str)

#define OPTIONAL(X)                        \
	X(ibv_reg_mr_iova2, "IBVERBS_1.8") \
	X(ibv_query_ece, "IBVERBS_1.10")   \
	X(ibv_set_ece, "IBVERBS_1.10")     \
	X(ibv_reg_dmabuf_mr, "IBVERBS_1.12")

static struct {
#define X(name, ...) __typeof__ (&name)(name);
	REQUIRED(X)
	OPTIONAL(X)
#undef X
} verbs;

static void *find(void *library, const char *name, const char *version, void *out)
{
	void *symbol = dlvsym(library, name, version);

	memcpy(out, &symbol, sizeof(symbol));
	return symbol;
}

static void load(const char *name)
{
	void *library = dlopen(name, RTLD_NOW), *old;

	CHECK(library);
#define X(name) CHECK(find(library, #name, "IBVERBS_1.1", &verbs.name));
	REQUIRED(X)
#undef X
#define X(name, version) find(library, #name, version, &verbs.name);
	OPTIONAL(X)
#undef X
	/* Another function, with other structures. */
	old = dlvsym(library, "ibv_get_device_list", "IBVERBS_1.0");
	CHECK(old && old != (void *)verbs.ibv_get_device_list);
	CHECK(!dlvsym(library, "ibv_get_device_list", "IBVERBS_1.12"));
	CHECK(!dlvsym(library, "ibv_query_ece", "IBVERBS_1.1"));
	CHECK(dlsym(library, "ibv_open_device") == (void *)verbs.ibv_open_device);
	CHECK(dlsym(library, "ibv_node_type_str") && !dlsym(library, "ibv_none"));
}

/*
 * Devices
 */

struct device {
	struct ibv_context *context;
	struct ibv_port_attr port;
	union ibv_gid gid;
	int gid_index;
	char path[PATH_MAX]; /* as NCCL writes it: without the PCI function */
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *data, *slot;
};

static struct device devices[DEVICES_MAX];
static unsigned device_count;

static void *wait_for_events(void *context)
{
	struct ibv_async_event event;

	while (!verbs.ibv_get_async_event(context, &event))
		verbs.ibv_ack_async_event(&event);
	return NULL;
}

static void find_path(struct device *device, const char *name)
{
	char path[PATH_MAX], again[PATH_MAX], target[PATH_MAX];
	char *real;
	size_t length;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/device", name);
	real = realpath(path, NULL);
	CHECK(real && real[0] == '/' && strlen(real) > strlen("0000:00:00.0"));
	CHECK(readlink(path, target, sizeof(target)) > 0);
	/* Mooncake's way to the same place. */
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/../..", name);
	CHECK(realpath(path, again) && !strcmp(again, real));
	/* NCCL fuses devices that it does not take for PCI devices, and then finds none. */
	snprintf(path, sizeof(path), "%s/subsystem", real);
	CHECK(realpath(path, again) && !strcmp(strrchr(again, '/'), "/pci"));
	length = strlen(real);
	real[length - 1] = real[length - 3] = real[length - 4] = '0';
	snprintf(device->path, sizeof(device->path), "%s", real);
	free(real);
	for (struct device *other = devices; other < device; other++)
		CHECK(strcmp(other->path, device->path) < 0);
}

static void find_gid(struct device *device, const char *name)
{
	char path[PATH_MAX], text[16] = "";
	FILE *file;

	CHECK(device->port.gid_tbl_len > 0);
	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/1/gid_attrs/types/0", name);
	CHECK(!verbs.ibv_query_gid(device->context, 1, 0, &device->gid));
	CHECK(device->gid.raw[10] == 0xff && device->gid.raw[11] == 0xff);
	CHECK((file = fdopen(open(path, O_RDONLY), "r")));
	CHECK(fgets(text, sizeof(text), file) && !strcmp(text, "RoCE v2\n"));
	fclose(file);
}

static bool open_device(struct ibv_device *found, struct device *device)
{
	const char *name = verbs.ibv_get_device_name(found);
	struct ibv_device_attr attr;
	pthread_t thread;

	if (strncmp(name, "soft", 4) != 0)
		return false;
	CHECK((device->context = verbs.ibv_open_device(found)));
	CHECK(!verbs.ibv_query_device(device->context, &attr));
	CHECK(attr.phys_port_cnt == 1 && attr.max_qp > 0);
	memset(&device->port, 0, sizeof(device->port));
	CHECK(!verbs.ibv_query_port(device->context, 1, (void *)&device->port));
	CHECK(device->port.state == IBV_PORT_ACTIVE);
	CHECK(device->port.link_layer == IBV_LINK_LAYER_ETHERNET);
	CHECK(device->port.active_speed && device->port.active_width);
	find_path(device, name);
	find_gid(device, name);
	CHECK(!pthread_create(&thread, NULL, wait_for_events, device->context));
	CHECK(!pthread_detach(thread));
	return true;
}

static void open_devices(void)
{
	struct ibv_device **list;
	int count;

	verbs.ibv_fork_init();
	CHECK((list = verbs.ibv_get_device_list(&count)));
	for (int i = 0; i < count && device_count < DEVICES_MAX; i++)
		device_count += open_device(list[i], &devices[device_count]);
	verbs.ibv_free_device_list(list);
	CHECK(device_count >= 2);
}

/*
 * Connections
 */

struct slot {
	uint64_t addr;
	uint32_t rkey[DEVICES_MAX];
	uint32_t size, index;
};

struct card {
	union ibv_gid gid;
	uint32_t qp_num, slot_rkey;
	uint64_t slot_addr;
};

static char *data;
static volatile struct slot slot; /* the sender's is written by the receiver */
static struct slot slot_out;

static struct ibv_mr *register_memory(struct device *device, void *addr, size_t length)
{
	unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr;

	if (verbs.ibv_reg_mr_iova2)
		mr = verbs.ibv_reg_mr_iova2(device->pd, addr, length, (uintptr_t)addr,
					    access | RO_OPTIONAL);
	else
		mr = verbs.ibv_reg_mr(device->pd, addr, length, (int)access);
	CHECK(mr);
	return mr;
}

static void make_qp(struct device *device)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 64,
			 .max_recv_wr = 32,
			 .max_send_sge = 1,
			 .max_recv_sge = 1,
			 .max_inline_data = 0 },
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	CHECK((device->pd = verbs.ibv_alloc_pd(device->context)));
	/* NCCL asks with an invalid descriptor whether it can be done. */
	if (verbs.ibv_reg_dmabuf_mr)
		CHECK(!verbs.ibv_reg_dmabuf_mr(device->pd, 0, 0, 0, -1, 0) &&
		      errno == EOPNOTSUPP);
	CHECK((device->cq =
		       verbs.ibv_create_cq(device->context, CQ_DEPTH, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = device->cq;
	CHECK((device->qp = verbs.ibv_create_qp(device->pd, &init)));
	CHECK(!verbs.ibv_modify_qp(device->qp, &attr,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
					   IBV_QP_ACCESS_FLAGS));
	if (verbs.ibv_query_ece) {
		struct ibv_ece ece = { 0 };

		CHECK(verbs.ibv_query_ece(device->qp, &ece) == EOPNOTSUPP);
	}
	device->data = register_memory(device, data, MESSAGE_MAX);
	device->slot = register_memory(device, (void *)&slot, sizeof(slot));
}

static void connect_qp(struct device *device, const struct card *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = device->port.active_mtu,
		.dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = peer->gid, .hop_limit = 255 } },
	};

	CHECK(!verbs.ibv_modify_qp(device->qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC |
					   IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 20,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	CHECK(!verbs.ibv_modify_qp(device->qp, &attr,
				   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					   IBV_QP_MAX_QP_RD_ATOMIC));
}

static void exchange(int fd, const void *mine, void *peers, size_t size)
{
	CHECK(write(fd, mine, size) == (ssize_t)size);
	CHECK(recv(fd, peers, size, MSG_WAITALL) == (ssize_t)size);
}

static void connect_all(int fd, struct card peers[DEVICES_MAX])
{
	struct card card;

	for (unsigned i = 0; i < device_count; i++) {
		struct device *device = &devices[i];

		make_qp(device);
		card = (struct card){ .gid = device->gid,
				      .qp_num = device->qp->qp_num,
				      .slot_rkey = device->slot->rkey,
				      .slot_addr = (uintptr_t)&slot };
		exchange(fd, &card, &peers[i], sizeof(card));
		connect_qp(device, &peers[i]);
	}
	/* The peer must not send before this end can receive. */
	exchange(fd, "", &card, 1);
}

/*
 * Messages
 */

/* Completions of both kinds come in any order: the peer may write before the acknowledgment of
 * the slot is here. */
static void wait_for(struct device *device, unsigned writes, unsigned receives,
		     uint32_t imm)
{
	struct ibv_wc wc;
	int count;

	while (writes || receives) {
		count = ibv_poll_cq(device->cq, 1, &wc);
		if (!count)
			continue;
		CHECK(count == 1 && wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_RDMA_WRITE) {
			CHECK(writes--);
			continue;
		}
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && receives--);
		CHECK(wc.wc_flags & IBV_WC_WITH_IMM && wc.imm_data == imm);
	}
}

static void post_write(struct device *device, struct ibv_sge *sge, uint64_t addr,
		       uint32_t rkey, enum ibv_wr_opcode opcode, uint32_t imm)
{
	struct ibv_send_wr wr = {
		.sg_list = sge,
		.num_sge = sge->length ? 1 : 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = imm,
		.wr.rdma = { .remote_addr = addr, .rkey = rkey },
	}, *bad;

	CHECK(!ibv_post_send(device->qp, &wr, &bad));
}

static char byte_of(uint32_t index, uint32_t at)
{
	return (char)(index * 31 + at + (at >> 8) * 7);
}

/* The part of each device: the first ones take what there is. */
static uint32_t part_size(uint32_t size)
{
	uint32_t part = (size + device_count - 1) / device_count;

	return (part + CHUNK - 1) / CHUNK * CHUNK;
}

static void send_message(uint32_t index, uint32_t size)
{
	uint32_t part = part_size(size), at = 0;

	while (__atomic_load_n(&slot.index, __ATOMIC_ACQUIRE) != index)
		;
	CHECK(slot.size >= size);
	for (uint32_t i = 0; i < size; i++)
		data[i] = byte_of(index, i);
	for (unsigned i = 0; i < device_count; i++) {
		uint32_t length = size - at < part ? size - at : part;
		struct ibv_sge sge = { (uintptr_t)data + at, length,
				       devices[i].data->lkey };

		post_write(&devices[i], &sge, slot.addr + at, slot.rkey[i],
			   IBV_WR_RDMA_WRITE_WITH_IMM, size);
		at += length;
	}
	for (unsigned i = 0; i < device_count; i++)
		wait_for(&devices[i], 1, 0, 0);
}

static void receive_message(const struct card *peer, uint32_t index, uint32_t size)
{
	struct ibv_recv_wr wr = { .wr_id = index }, *bad;
	struct ibv_sge sge = { (uintptr_t)&slot_out, sizeof(slot_out), 0 };
	struct ibv_mr *mr = register_memory(&devices[0], &slot_out, sizeof(slot_out));

	memset(data, 0x55, MESSAGE_MAX);
	slot_out = (struct slot){ .addr = (uintptr_t)data,
				  .size = MESSAGE_MAX,
				  .index = index };
	for (unsigned i = 0; i < device_count; i++) {
		slot_out.rkey[i] = devices[i].data->rkey;
		CHECK(!ibv_post_recv(devices[i].qp, &wr, &bad));
	}
	sge.lkey = mr->lkey;
	post_write(&devices[0], &sge, peer[0].slot_addr, peer[0].slot_rkey,
		   IBV_WR_RDMA_WRITE, 0);
	for (unsigned i = 0; i < device_count; i++)
		wait_for(&devices[i], i == 0, 1, size);
	for (uint32_t i = 0; i < size; i++)
		CHECK(data[i] == byte_of(index, i));
	for (uint32_t i = size; i < MESSAGE_MAX; i++)
		CHECK(data[i] == 0x55);
	CHECK(!verbs.ibv_dereg_mr(mr));
}

static void destroy_all(void)
{
	for (unsigned i = 0; i < device_count; i++) {
		CHECK(!verbs.ibv_destroy_qp(devices[i].qp));
		CHECK(!verbs.ibv_destroy_cq(devices[i].cq));
		CHECK(!verbs.ibv_dereg_mr(devices[i].data));
		CHECK(!verbs.ibv_dereg_mr(devices[i].slot));
		CHECK(!verbs.ibv_dealloc_pd(devices[i].pd));
	}
}

/* Returns the exit status. */
static int run_side(const char *library, int fd, bool sends)
{
	static const uint32_t sizes[] = {
		0, 1, 127, 4095, 65536, 1048577, MESSAGE_MAX
	};
	struct card peers[DEVICES_MAX], byte;

	alarm(patience_s(60));
	side = sends ? "sender" : "receiver";
	CHECK((data = malloc(MESSAGE_MAX)));
	load(library);
	open_devices();
	connect_all(fd, peers);
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		if (sends)
			send_message(i + 1, sizes[i]);
		else
			receive_message(peers, i + 1, sizes[i]);
	}
	exchange(fd, "", &byte, 1);
	destroy_all();
	return 0;
}

int main(int argc, char **argv)
{
	int fds[2], status;
	pid_t child;

	CHECK(argc == 2 && !socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	CHECK((child = fork()) >= 0);
	if (!child)
		_exit(run_side(argv[1], fds[1], true));
	close(fds[1]);
	status = run_side(argv[1], fds[0], false);
	CHECK(waitpid(child, &status, 0) == child && !status);
	return 0;
}
