/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "null.h"

#define QP_NUM_FIRST 17
#define QPS_MAX	     (1u << 16)
#define DEPTH_MAX    (1u << 20)
#define LINES	     128

#define container_of(pointer, type, member) \
	((type *)((char *)(pointer)-offsetof(type, member)))

struct null_device {
	struct verbs_context verbs;
	struct ibv_device ibv;
	struct ibv_pd pd;
	uint32_t next_key;
	uint32_t next_qp_num;
	struct null_qp *qp[QPS_MAX]; /* by the lower bits of their numbers */
};

/* What hardware reads of a WR. */
struct null_wqe {
	uint32_t opcode_and_index, qp_num_and_size, flags, imm;
	uint64_t remote_addr;
	uint32_t rkey, reserved;
	struct ibv_sge data[2]; /* further ones share the second's place */
};

_Static_assert(sizeof(struct null_wqe) == 64, "one cache line");

/* All positions are counters that wrap; a slot is position & mask. */
struct null_qp {
	struct ibv_qp ibv;
	struct null_cq *send_cq;
	struct null_cq *recv_cq;
	struct null_wqe *send_wqe;
	uint64_t *send_wr_id;
	uint32_t send_depth;
	uint32_t send_tail;
	uint32_t send_freed;
	uint32_t recv_mask;
	uint32_t recv_tail;
	uint32_t recv_head;
	uint32_t recv_freed;
	uint64_t *recv_wr_id;
	struct ibv_sge *recv_wqe; /* the last SGE of each */
	struct ibv_qp_init_attr init;
};

/* Hardware knows QPs by number and WRs by their place in the queue. */
struct null_cqe {
	uint32_t qp_num;
	uint32_t position;
	uint32_t byte_len; /* of a receive */
	uint32_t imm;
	uint32_t opcode;
};

struct null_cq {
	struct ibv_cq ibv;
	struct null_cqe *ring;
	uint32_t mask;
	uint32_t tail;
	uint32_t head;
};

/*
 * The data path
 */

static const uint8_t wc_opcode[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
	[IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
	[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD,
};

static inline void write_wqe(struct null_qp *qp, const struct ibv_send_wr *wr)
{
	struct null_wqe *wqe = &qp->send_wqe[qp->send_tail & (qp->send_depth - 1)];

	wqe->opcode_and_index = qp->send_tail << 8 | wr->opcode;
	wqe->qp_num_and_size = qp->ibv.qp_num << 8 | wr->num_sge;
	wqe->flags = wr->send_flags;
	wqe->imm = wr->imm_data;
	wqe->remote_addr = wr->wr.rdma.remote_addr;
	wqe->rkey = wr->wr.rdma.rkey;
	if (wr->num_sge)
		wqe->data[0] = wr->sg_list[0];
	for (int i = 1; i < wr->num_sge; i++)
		wqe->data[1] = wr->sg_list[i];
}

static int null_post_send(struct ibv_qp *ibv_qp, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad_wr)
{
	struct null_qp *qp = container_of(ibv_qp, struct null_qp, ibv);
	struct null_cq *cq = qp->send_cq;

	for (; wr; wr = wr->next) {
		if (qp->send_tail - qp->send_freed == qp->send_depth) {
			*bad_wr = wr;
			return ENOMEM;
		}
		write_wqe(qp, wr);
		qp->send_wr_id[qp->send_tail & (qp->send_depth - 1)] = wr->wr_id;
		if (wr->send_flags & IBV_SEND_SIGNALED) {
			struct null_cqe *cqe = &cq->ring[cq->tail++ & cq->mask];

			cqe->qp_num = qp->ibv.qp_num;
			cqe->position = qp->send_tail;
			cqe->opcode = wc_opcode[wr->opcode];
		}
		qp->send_tail++;
	}
	return 0;
}

static int null_post_recv(struct ibv_qp *ibv_qp, struct ibv_recv_wr *wr,
			  struct ibv_recv_wr **bad_wr)
{
	struct null_qp *qp = container_of(ibv_qp, struct null_qp, ibv);

	for (; wr; wr = wr->next) {
		if (qp->recv_tail - qp->recv_freed > qp->recv_mask) {
			*bad_wr = wr;
			return ENOMEM;
		}
		struct ibv_sge *data = &qp->recv_wqe[qp->recv_tail & qp->recv_mask];

		/* Drivers end a list with an entry that says so. */
		*data = (struct ibv_sge){ .lkey = 0x100 };
		for (int i = 0; i < wr->num_sge; i++)
			*data = wr->sg_list[i];
		qp->recv_wr_id[qp->recv_tail++ & qp->recv_mask] = wr->wr_id;
	}
	return 0;
}

int null_recv(struct ibv_qp *ibv_qp, uint32_t imm, uint32_t byte_len)
{
	struct null_qp *qp = container_of(ibv_qp, struct null_qp, ibv);
	struct null_cq *cq = qp->recv_cq;
	struct null_cqe *cqe;

	if (qp->recv_head == qp->recv_tail)
		return -ENOENT;
	cqe = &cq->ring[cq->tail++ & cq->mask];
	cqe->qp_num = qp->ibv.qp_num;
	cqe->position = qp->recv_head++;
	cqe->byte_len = byte_len;
	cqe->imm = imm;
	cqe->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	return 0;
}

void null_refuse_sends(struct ibv_qp *ibv_qp, bool refuse)
{
	struct null_qp *qp = container_of(ibv_qp, struct null_qp, ibv);

	qp->send_freed = qp->send_tail - (refuse ? qp->send_depth : 0);
}

static inline void take_cqe(struct null_device *device, const struct null_cqe *cqe,
			    struct ibv_wc *wc)
{
	struct null_qp *qp = device->qp[cqe->qp_num % QPS_MAX];

	wc->status = IBV_WC_SUCCESS;
	wc->opcode = cqe->opcode;
	wc->qp_num = cqe->qp_num;
	if (cqe->opcode & IBV_WC_RECV) {
		wc->wr_id = qp->recv_wr_id[cqe->position & qp->recv_mask];
		qp->recv_freed = cqe->position + 1;
		wc->byte_len = cqe->byte_len;
		wc->imm_data = cqe->imm;
		wc->wc_flags = IBV_WC_WITH_IMM;
		wc->src_qp = 0;
		wc->pkey_index = 0;
		wc->slid = 0;
		wc->sl = 0;
		wc->dlid_path_bits = 0;
	} else {
		wc->wr_id = qp->send_wr_id[cqe->position & (qp->send_depth - 1)];
		wc->wc_flags = 0;
		qp->send_freed = cqe->position + 1;
	}
}

static int null_poll_cq(struct ibv_cq *ibv_cq, int num_entries, struct ibv_wc *wc)
{
	struct null_cq *cq = container_of(ibv_cq, struct null_cq, ibv);
	struct null_device *device =
		container_of(ibv_cq->context, struct null_device, verbs.context);
	int count;

	for (count = 0; count < num_entries && cq->head != cq->tail; count++, wc++)
		take_cqe(device, &cq->ring[cq->head++ & cq->mask], wc);
	return count;
}

/* There is no channel that could be told. */
static int null_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return 0;
}

/*
 * The control table
 */

static struct null_device *device_of(struct ibv_context *context)
{
	return container_of(context, struct null_device, verbs.context);
}

static uint32_t round_up(uint32_t value)
{
	uint32_t power = 1;

	while (power < value)
		power *= 2;
	return power;
}

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr_out)
{
	(void)context;
	*attr_out = (struct ibv_device_attr){
		.fw_ver = "null",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 4096,
		.max_qp = 1 << 16,
		.max_qp_wr = DEPTH_MAX,
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_cq = 1 << 16,
		.max_cqe = DEPTH_MAX,
		.max_mr = 1 << 16,
		.max_pd = 1 << 16,
		.max_qp_rd_atom = 128,
		.max_qp_init_rd_atom = 128,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port,
		      struct ibv_port_attr *attr_out)
{
	(void)context;
	if (port != 1)
		return -EINVAL;
	*attr_out = (struct ibv_port_attr){
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.max_msg_sz = 1u << 30,
		.pkey_tbl_len = 1,
		.active_width = 2,
		.active_speed = 32,
		.phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}

static int null_query_gid(struct ibv_context *context, uint8_t port, uint32_t index,
			  struct ibv_gid_entry *entry_out)
{
	(void)context;
	if (port != 1 || index != 0)
		return -EINVAL;
	*entry_out = (struct ibv_gid_entry){
		.gid.raw = { [10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1 },
		.port_num = 1,
		.gid_type = IBV_GID_TYPE_ROCE_V2,
	};
	return 0;
}

static int query_numa_node(struct ibv_context *context, int *node_out)
{
	(void)context;
	*node_out = -1;
	return 0;
}

static int alloc_pd(struct ibv_context *context, struct ibv_pd **pd_out)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return -ENOMEM;
	pd->context = context;
	*pd_out = pd;
	return 0;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

static int null_reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		       struct ibv_mr **mr_out)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	if (!mr)
		return -ENOMEM;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = mr->rkey = device_of(pd->context)->next_key++;
	*mr_out = mr;
	return 0;
}

static int dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

/* As drivers do: what one thread writes shares no cache line, nor a pair of them, with what
 * another one does. */
static void *alloc_lines(size_t count, size_t size)
{
	size_t length = (count * size + LINES - 1) & ~(size_t)(LINES - 1);
	void *memory;

	if (posix_memalign(&memory, LINES, length))
		return NULL;
	return memset(memory, 0, length);
}

static int null_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			  struct ibv_comp_channel *channel, int vector,
			  struct ibv_cq **cq_out)
{
	struct null_cq *cq;

	if (channel)
		return -EOPNOTSUPP;
	if (cqe < 1 || (unsigned)cqe > DEPTH_MAX || vector != 0)
		return -EINVAL;
	cq = alloc_lines(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->mask = round_up(cqe) - 1;
	cq->ring = alloc_lines((size_t)cq->mask + 1, sizeof(*cq->ring));
	if (!cq->ring) {
		free(cq);
		return -ENOMEM;
	}
	cq->ibv.context = context;
	cq->ibv.cq_context = cq_context;
	cq->ibv.cqe = cq->mask + 1;
	*cq_out = &cq->ibv;
	return 0;
}

static int destroy_cq(struct ibv_cq *ibv_cq)
{
	struct null_cq *cq = container_of(ibv_cq, struct null_cq, ibv);

	free(cq->ring);
	free(cq);
	return 0;
}

static void free_qp(struct null_qp *qp)
{
	free(qp->recv_wr_id);
	free(qp->recv_wqe);
	free(qp->send_wqe);
	free(qp->send_wr_id);
	free(qp);
}

static int create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
		     struct ibv_qp **qp_out)
{
	struct null_device *device = device_of(pd->context);
	struct null_qp *qp;

	if (attr->srq || attr->sq_sig_all)
		return -EOPNOTSUPP;
	if (device->qp[device->next_qp_num % QPS_MAX])
		return -ENOMEM;
	if (attr->cap.max_send_wr > DEPTH_MAX || attr->cap.max_recv_wr > DEPTH_MAX)
		return -EINVAL;
	qp = alloc_lines(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	attr->cap.max_send_wr = round_up(attr->cap.max_send_wr);
	attr->cap.max_recv_wr = round_up(attr->cap.max_recv_wr);
	qp->recv_wr_id = alloc_lines(attr->cap.max_recv_wr, sizeof(*qp->recv_wr_id));
	qp->recv_wqe = alloc_lines(attr->cap.max_recv_wr, sizeof(*qp->recv_wqe));
	qp->send_wqe = alloc_lines(attr->cap.max_send_wr, sizeof(*qp->send_wqe));
	qp->send_wr_id = alloc_lines(attr->cap.max_send_wr, sizeof(*qp->send_wr_id));
	if (!qp->recv_wr_id || !qp->recv_wqe || !qp->send_wqe || !qp->send_wr_id) {
		free_qp(qp);
		return -ENOMEM;
	}
	qp->send_depth = attr->cap.max_send_wr;
	qp->recv_mask = attr->cap.max_recv_wr - 1;
	qp->send_cq = container_of(attr->send_cq, struct null_cq, ibv);
	qp->recv_cq = container_of(attr->recv_cq, struct null_cq, ibv);
	qp->init = *attr;
	qp->ibv.context = pd->context;
	qp->ibv.qp_context = attr->qp_context;
	qp->ibv.pd = pd;
	qp->ibv.send_cq = attr->send_cq;
	qp->ibv.recv_cq = attr->recv_cq;
	qp->ibv.qp_type = attr->qp_type;
	qp->ibv.state = IBV_QPS_RESET;
	qp->ibv.qp_num = device->next_qp_num++;
	device->qp[qp->ibv.qp_num % QPS_MAX] = qp;
	*qp_out = &qp->ibv;
	return 0;
}

static int modify_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_STATE)
		ibv_qp->state = attr->qp_state;
	return 0;
}

static int query_qp(struct ibv_qp *ibv_qp, struct ibv_qp_attr *attr_out, int mask,
		    struct ibv_qp_init_attr *init_attr_out)
{
	struct null_qp *qp = container_of(ibv_qp, struct null_qp, ibv);

	(void)mask;
	*attr_out = (struct ibv_qp_attr){
		.qp_state = ibv_qp->state,
		.cur_qp_state = ibv_qp->state,
		.cap = qp->init.cap,
	};
	if (init_attr_out)
		*init_attr_out = qp->init;
	return 0;
}

/* CQEs point to their QP, so none may outlive it. */
static void purge_qp(struct null_cq *cq, const struct null_qp *qp)
{
	uint32_t from, to = cq->head;

	for (from = cq->head; from != cq->tail; from++) {
		if (cq->ring[from & cq->mask].qp_num != qp->ibv.qp_num)
			cq->ring[to++ & cq->mask] = cq->ring[from & cq->mask];
	}
	cq->tail = to;
}

static int destroy_qp(struct ibv_qp *ibv_qp)
{
	struct null_qp *qp = container_of(ibv_qp, struct null_qp, ibv);

	purge_qp(qp->send_cq, qp);
	purge_qp(qp->recv_cq, qp);
	device_of(ibv_qp->context)->qp[ibv_qp->qp_num % QPS_MAX] = NULL;
	free_qp(qp);
	return 0;
}

static const struct snt_control control = {
	.size = sizeof(struct snt_control),
	.query_device = query_device,
	.query_port = query_port,
	.query_gid = null_query_gid,
	.query_numa_node = query_numa_node,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = null_reg_mr,
	.dereg_mr = dereg_mr,
	.create_cq = null_create_cq,
	.destroy_cq = destroy_cq,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
};

struct null_device *null_device_create(const char *name)
{
	struct null_device *device = calloc(1, sizeof(*device));
	struct ibv_context *context;

	if (!device)
		return NULL;
	snprintf(device->ibv.name, sizeof(device->ibv.name), "%s", name);
	device->ibv.node_type = IBV_NODE_CA;
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	device->verbs.sz = sizeof(device->verbs);
	device->next_key = 1;
	device->next_qp_num = QP_NUM_FIRST;

	context = &device->verbs.context;
	context->abi_compat = (void *)-1;
	context->device = &device->ibv;
	context->cmd_fd = -1;
	context->async_fd = -1;
	context->num_comp_vectors = 1;
	context->ops.post_send = null_post_send;
	context->ops.post_recv = null_post_recv;
	context->ops.poll_cq = null_poll_cq;
	context->ops.req_notify_cq = null_req_notify_cq;
	device->pd.context = context;
	return device;
}

void null_device_destroy(struct null_device *device)
{
	free(device);
}

struct snt_adopted null_adopted(struct null_device *device)
{
	return (struct snt_adopted){
		.size = sizeof(struct snt_adopted),
		.name = device->ibv.name,
		.context = &device->verbs.context,
		.pd = &device->pd,
		.control = &control,
		.port = 1,
	};
}
