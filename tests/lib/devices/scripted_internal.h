/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_SCRIPTED_INTERNAL_H
#define SENNIT_TESTS_SCRIPTED_INTERNAL_H

#include <stddef.h>
#include "scripted.h"

/*
 * The inside of the scripted device, shared by its files:
 *
 *	scripted.c          fabrics, devices, the list of objects, queries
 *	scripted_control.c  the control table, ports, PDs, injected control failures
 *	scripted_memory.c   regions, keys, access checks, copying
 *	scripted_event.c    completion channels and async events
 *	scripted_cq.c       completion queues
 *	scripted_qp.c       queue pairs and their state machine
 *	scripted_srq.c      receive queues, shared or not
 *	scripted_post.c     posting and injected post failures
 *	scripted_retire.c   WRs leave their queues, CQEs and their garbage, flushes
 *	scripted_land.c     what WRs do at the peer; landing and completing
 *	scripted_step.c     auto mode: random order, and eager
 *
 * Queue positions are counters that never wrap; a slot is position % depth.
 */

#define SCRIPTED_PSN_MASK	 0xffffffu
#define SCRIPTED_KEYS_MAX	 4096
#define SCRIPTED_POST_FAULTS_MAX 8
#define SCRIPTED_DEVICES_MAX	 127

#define container_of(pointer, type, member) \
	((type *)((char *)(pointer)-offsetof(type, member)))

/* What all objects of a device have in common. `users` counts the objects which
 * hold a pointer to this one. */
struct scripted_object {
	struct scripted_object *next;
	struct scripted_device *device;
	enum scripted_kind kind;
	unsigned users;
	unsigned async_taken;
	unsigned async_acked;
};

/* A FIFO of records in a pipe, so that programs can wait for it with poll(2). */
struct scripted_pipe {
	int read_fd;
	int write_fd;
	unsigned queued;
};

struct scripted_pd {
	struct scripted_object object;
	struct ibv_pd ibv;
};

struct scripted_mr {
	struct scripted_object object;
	struct ibv_mr ibv;
	unsigned access;
	unsigned key_index;
	uint64_t iova; /* the address by which requests name `bytes` */
	unsigned char *bytes;
	void *mapping; /* of a dma-buf */
	size_t mapping_length;
};

struct scripted_channel {
	struct scripted_object object;
	struct ibv_comp_channel ibv;
	struct scripted_pipe pipe; /* of struct scripted_cq pointers */
};

struct scripted_recv_slot {
	uint64_t wr_id;
	int num_sge;
	struct ibv_sge *sge;
};

/* freed <= head <= tail <= freed + depth. Receives in [head, tail) wait; those in
 * [freed, head) are consumed, but their CQEs are not polled yet. */
struct scripted_recv_queue {
	struct scripted_recv_slot *slots;
	struct ibv_sge *sges;
	unsigned depth;
	unsigned sge_max;
	uint64_t tail;
	uint64_t head;
	uint64_t freed;
};

struct scripted_srq {
	struct scripted_object object;
	struct ibv_srq ibv;
	struct scripted_recv_queue queue;
	unsigned limit;
};

struct scripted_send_slot {
	struct ibv_send_wr wr; /* sg_list points to this slot's own SGEs */
	struct ibv_sge *sge;
	unsigned char *inline_bytes;
	uint32_t inline_length;
	bool signaled;
	enum ibv_wc_status fate; /* what landing found; the slot cannot succeed */
};

/* freed <= head <= landed <= tail <= freed + depth. */
struct scripted_send_queue {
	struct scripted_send_slot *slots;
	struct ibv_sge *sges;
	unsigned char *inline_bytes;
	unsigned depth;
	uint64_t tail;	 /* next to be posted */
	uint64_t landed; /* next to land */
	uint64_t head;	 /* next to complete */
	uint64_t freed;	 /* oldest whose slot is still taken */
};

struct scripted_qp {
	struct scripted_object object;
	struct ibv_qp ibv;
	struct ibv_qp_attr attr; /* PSNs advance with each landing */
	struct ibv_qp_init_attr init;
	struct scripted_send_queue send;
	struct scripted_recv_queue recv;
	struct scripted_counters counters;
	bool stuck; /* scripted_step() tried since something last moved */
};

/* `owner` and `recv` are forgotten (NULL) when those die before the CQE does. */
struct scripted_cqe {
	struct ibv_wc wc;
	struct scripted_qp *owner;
	struct scripted_recv_queue *recv; /* NULL for a send */
	uint64_t send_retired;		  /* polling it frees slots up to here */
};

struct scripted_cq {
	struct scripted_object object;
	struct ibv_cq ibv;
	struct scripted_cqe *ring;
	uint64_t tail;
	uint64_t head;
	unsigned overruns;
	int vector;
	int poll_limit;
	unsigned fail_poll;
	bool held;
	bool held_news;		  /* CQEs arrived while held */
	bool held_solicited_news; /* of which one was solicited */
	bool armed;
	bool armed_solicited;
	unsigned events_taken;
	unsigned events_acked;
};

struct scripted_key {
	struct scripted_mr *mr;
	unsigned generation;
};

struct scripted_device {
	struct verbs_context verbs;
	struct ibv_device ibv;
	struct scripted_fabric *fabric;
	struct scripted_device *next;
	unsigned ordinal; /* from 1 */
	struct scripted_device_opts limits;
	struct scripted_pd pd;
	struct scripted_object *objects[SCRIPTED_KIND_COUNT]; /* in creation order */
	unsigned live[SCRIPTED_KIND_COUNT];
	struct ibv_gid_entry gids[SCRIPTED_GID_MAX];
	enum ibv_port_state port_state;
	struct scripted_key *keys;
	struct scripted_pipe async; /* of struct ibv_async_event */
	struct scripted_counters counters;
	unsigned faults;
	struct scripted_post_fault post_faults[SCRIPTED_POST_FAULTS_MAX];
	unsigned control_fail_nth;
	int control_fail_error;
	const char *control_failed;
};

struct scripted_fabric {
	struct scripted_device *devices;
	unsigned device_count;
	uint64_t random;
	bool eager;
};

/* Bytes in several places, in order. */
struct scripted_spans {
	unsigned count;
	uint64_t length;
	struct {
		unsigned char *bytes;
		uint64_t length;
	} span[SCRIPTED_SGE_MAX];
};

static inline struct scripted_device *scripted__device(struct ibv_context *context)
{
	return container_of(context, struct scripted_device, verbs.context);
}

static inline struct scripted_qp *scripted__qp(struct ibv_qp *qp)
{
	return container_of(qp, struct scripted_qp, ibv);
}

static inline struct scripted_cq *scripted__cq(struct ibv_cq *cq)
{
	return container_of(cq, struct scripted_cq, ibv);
}

static inline struct scripted_srq *scripted__srq(struct ibv_srq *srq)
{
	return container_of(srq, struct scripted_srq, ibv);
}

static inline struct scripted_pd *scripted__pd(struct ibv_pd *pd)
{
	return container_of(pd, struct scripted_pd, ibv);
}

/* The queue that a QP's receives come from. */
static inline struct scripted_recv_queue *scripted__recv_queue(struct scripted_qp *qp)
{
	return qp->ibv.srq ? &scripted__srq(qp->ibv.srq)->queue : &qp->recv;
}

/* scripted.c */
uint64_t scripted__random(uint64_t *state);
void scripted__object_add(struct scripted_device *device,
			  struct scripted_object *object, enum scripted_kind kind);
void scripted__object_remove(struct scripted_object *object);
bool scripted__object_busy(struct scripted_object *object);
void scripted__object_free(struct scripted_object *object);
bool scripted__gid_empty(const struct ibv_gid_entry *entry);
unsigned scripted__grant(const struct scripted_device *device, unsigned asked,
			 unsigned limit);

/* scripted_control.c */
extern const struct snt_control scripted__control;
int scripted__control_enter(struct scripted_device *device, const char *function);

/* Begins each function of the control table: counts, and fails if told to. */
#define CONTROL_ENTER(device)                                                \
	do {                                                                 \
		int enter_error = scripted__control_enter(device, __func__); \
		if (enter_error)                                             \
			return enter_error;                                  \
	} while (0)

/* scripted_memory.c */
int scripted__reg_mr(struct ibv_pd *pd, void *addr, size_t length, unsigned access,
		     struct ibv_mr **mr_out);
int scripted__reg_dmabuf_mr(struct ibv_pd *pd, int fd, uint64_t offset, size_t length,
			    uint64_t iova, unsigned access, struct ibv_mr **mr_out);
int scripted__dereg_mr(struct ibv_mr *mr);
void scripted__mr_free(struct scripted_mr *mr);
bool scripted__local_spans(const struct ibv_pd *pd, const struct ibv_sge *sge,
			   int num_sge, unsigned access,
			   struct scripted_spans *spans_out);
bool scripted__remote_span(struct scripted_qp *qp, uint32_t rkey, uint64_t addr,
			   uint64_t length, unsigned access,
			   struct scripted_spans *span_out);
void scripted__copy(const struct scripted_spans *to, const struct scripted_spans *from);

/* scripted_event.c */
int scripted__pipe_open(struct scripted_pipe *pipe);
void scripted__pipe_close(struct scripted_pipe *pipe);
void scripted__cq_event(struct scripted_cq *cq);
void scripted__cq_events_forget(struct scripted_cq *cq);
void scripted__async_forget(struct scripted_object *object);
void scripted__channel_free(struct scripted_channel *channel);
int scripted__create_channel(struct ibv_context *context,
			     struct ibv_comp_channel **channel_out);
int scripted__destroy_channel(struct ibv_comp_channel *channel);
int scripted__get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq_out,
			   void **cq_context_out);
void scripted__ack_cq_events(struct ibv_cq *cq, unsigned count);
int scripted__get_async_event(struct ibv_context *context,
			      struct ibv_async_event *event_out);
void scripted__ack_async_event(struct ibv_async_event *event);

/* scripted_cq.c */
void scripted__cq_push(struct scripted_cq *cq, const struct scripted_cqe *cqe,
		       bool solicited);
void scripted__cq_forget_qp(struct scripted_cq *cq, struct scripted_qp *qp);
void scripted__cq_forget_recv(struct scripted_cq *cq,
			      const struct scripted_recv_queue *recv);
void scripted__cq_free(struct scripted_cq *cq);
int scripted__create_cq(struct ibv_context *context, int cqe, void *cq_context,
			struct ibv_comp_channel *channel, int vector,
			struct ibv_cq **cq_out);
int scripted__destroy_cq(struct ibv_cq *cq);
int scripted__poll_cq(struct ibv_cq *cq, int num_entries, struct ibv_wc *wc);
int scripted__req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* scripted_qp.c */
void scripted__qp_error(struct scripted_qp *qp);
void scripted__qp_free(struct scripted_qp *qp);
int scripted__create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
			struct ibv_qp **qp_out);
int scripted__modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int scripted__query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr_out, int mask,
		       struct ibv_qp_init_attr *init_attr_out);
int scripted__destroy_qp(struct ibv_qp *qp);

/* scripted_srq.c */
int scripted__recv_queue_init(struct scripted_recv_queue *queue, unsigned depth,
			      unsigned sge_max);
void scripted__recv_queue_finish(struct scripted_recv_queue *queue);
void scripted__srq_consumed(struct scripted_srq *srq);
void scripted__srq_free(struct scripted_srq *srq);
int scripted__create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr,
			 struct ibv_srq **srq_out);
int scripted__modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int scripted__query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr_out);
int scripted__destroy_srq(struct ibv_srq *srq);

/* scripted_post.c */
void scripted__post_faults_forget(struct scripted_qp *qp);
int scripted__post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad_wr);
int scripted__post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);
int scripted__post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad_wr);

/* scripted_retire.c */
enum ibv_wc_opcode scripted__wc_opcode(enum ibv_wr_opcode opcode);
void scripted__retire_send(struct scripted_qp *qp, enum ibv_wc_status status);
struct scripted_cqe scripted__retire_recv(struct scripted_qp *qp);
void scripted__fail_recv(struct scripted_qp *qp, enum ibv_wc_status status);
void scripted__flush(struct scripted_qp *qp);

/* scripted_step.c */
void scripted__settle(struct scripted_fabric *fabric);

#endif
