/* SPDX-License-Identifier: MIT */
#ifndef SENNIT_TESTS_CONFORMANCE_KIT_H
#define SENNIT_TESTS_CONFORMANCE_KIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <sennit/sennit.h>

/*
 * What the cases are written with.
 *
 * A case gets an empty scene on the device under test, plays in it, and says
 * what a program could see. Everything it makes stays in the scene's slots;
 * when the case is over the scene destroys them, and a destruction that fails
 * or a completion that was not polled becomes part of what was observed.
 *
 * What is said must not depend on time, addresses or QP numbers: the same words
 * are compared with a table that is part of the documentation.
 */

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

/* The two ends of a pair. Each has a CQ of its own, for sends and receives. */
enum {
	A,
	B,
	ENDS
};

#define QPS_MAX	     4
#define CQS_MAX	     4
#define CHANNELS_MAX 2
#define MRS_MAX	     6
#define WCS_MAX	     128
#define SGES_MAX     4

#define ACCESS_ALL                                                                   \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* The scene's memory, all of it in mr[0]: what goes out, what requests name at
 * the peer, and what receives point to. */
#define AREA   (128u << 10)
#define NEAR   0u
#define FAR    AREA
#define SIDE   (2 * AREA)
#define BYTES  (3 * AREA)
#define CANARY 0xee /* all of FAR and SIDE, before anything happens */

#define IMM 0x12345678u

/* Ids of receives begin here, so that error CQEs tell which queue they are of. */
#define RECV_IDS 1000u

struct kit {
	struct snt_device *device;
	const struct snt_control *control;
	struct ibv_context *context;
	struct snt_device_info info;
	struct snt_gid_info gid;
	bool at_once; /* the device has no life of its own: never wait */
	/* Where time is not the real one: what it is, and letting some of it pass. */
	uint64_t (*now_ns)(void *arg);
	void (*pass)(void *arg, unsigned ms);
	void *time_arg;
};

struct scene {
	const struct kit *kit;
	const struct snt_control *control;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel[CHANNELS_MAX];
	struct ibv_cq *cq[CQS_MAX];
	struct ibv_srq *srq;
	struct ibv_qp *qp[QPS_MAX];
	struct ibv_mr *mr[MRS_MAX];
	struct ibv_mw *mw;
	unsigned char *bytes;
	uint64_t send_id, recv_id; /* of the last WR that was made */
	char text[4096];
	size_t length;
};

struct conformance_case {
	const char *name;
	const char *what;
	void (*run)(struct scene *scene);
};

extern const struct conformance_case cases_device[], cases_memory[], cases_data[],
	cases_order[], cases_error[], cases_peer[], cases_flush[], cases_post[],
	cases_queue[], cases_state[], cases_channel[], cases_srq[], cases_window[];

/*
 * Scenes (kit.c)
 */

/* Runs one case and returns what was observed, until the next call. */
const char *scene_run(const struct kit *kit, const struct conformance_case *test);

/* What a pair is made of; begin with PAIR_DEFAULTS. */
struct pair_opts {
	struct ibv_qp_cap cap;
	struct ibv_srq *srq;
	struct ibv_comp_channel *channel; /* of both CQs */
	unsigned access;		  /* of the QPs */
	unsigned cqe;
	uint32_t sq_psn, rq_psn;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer, max_rd_atomic;
	bool sig_all;
};

#define PAIR_DEFAULTS                                                           \
	{                                                                       \
		.cap = { .max_send_wr = 15,                                     \
			 .max_recv_wr = 15,                                     \
			 .max_send_sge = SGES_MAX,                              \
			 .max_recv_sge = SGES_MAX,                              \
			 .max_inline_data = 64 },                               \
		.access = ACCESS_ALL, .cqe = 64, .timeout = 14, .retry_cnt = 6, \
		.rnr_retry = 7, .min_rnr_timer = 1, .max_rd_atomic = 4,         \
	}

extern const struct pair_opts pair_defaults;

/* Makes the CQs and QPs of both ends and connects them. NULL: the defaults.
 * Like everything here that returns false, it has said what went wrong. */
bool make_pair(struct scene *scene, const struct pair_opts *opts);
/* With channel 0, and A's CQ armed: take_event() says that a CQE is there, and leaves
 * it. */
bool make_armed_pair(struct scene *scene);

bool make_cq(struct scene *scene, unsigned slot, unsigned cqe,
	     struct ibv_comp_channel *channel);
/* An RC QP in RESET, whose completions go to the CQ in slot @end. */
bool make_qp(struct scene *scene, unsigned slot, unsigned end,
	     const struct pair_opts *opts);
bool make_channel(struct scene *scene, unsigned slot); /* its fd does not block */
bool make_mr(struct scene *scene, unsigned slot, void *addr, size_t length,
	     unsigned access);
bool make_srq(struct scene *scene, unsigned depth);

/* Each destroys what is in the slot, if there is something, and empties it. */
int drop_qp(struct scene *scene, unsigned slot);
int drop_cq(struct scene *scene, unsigned slot);
int drop_mr(struct scene *scene, unsigned slot);

/*
 * States (kit_state.c)
 */

/* The attributes of a legal transition, and which they are. */
int attrs_for(const struct scene *scene, enum ibv_qp_state state,
	      const struct pair_opts *opts, uint32_t dest_qp_num,
	      struct ibv_qp_attr *attr_out);

int go_to(struct scene *scene, unsigned slot, enum ibv_qp_state state,
	  const struct pair_opts *opts, uint32_t dest_qp_num);
/* RESET to RTS. */
bool connect_to(struct scene *scene, unsigned slot, const struct pair_opts *opts,
		uint32_t dest_qp_num);
int to_error(struct scene *scene, unsigned slot);
enum ibv_qp_state state_of(struct scene *scene, unsigned slot);

/*
 * Work (kit_work.c)
 */

/* A work request with room for its SGEs. `wr` points into the struct, so it is
 * not to be copied. */
struct send {
	struct ibv_send_wr wr;
	struct ibv_sge sge[SGES_MAX];
};

struct recv {
	struct ibv_recv_wr wr;
	struct ibv_sge sge[SGES_MAX];
};

/* Signalled, from NEAR, to or from FAR, with IMM, with the next id. */
void send_init(struct scene *scene, struct send *send, enum ibv_wr_opcode opcode,
	       uint32_t length);
/* Into SIDE. */
void recv_init(struct scene *scene, struct recv *recv, uint32_t length);

/* Return what the verb returned. */
int post_send(struct scene *scene, unsigned slot, struct send *send);
int post_recv(struct scene *scene, unsigned slot, struct recv *recv);
int post_srq(struct scene *scene, struct recv *recv);

/* Make and post in one go; what is refused is said. */
void do_send(struct scene *scene, unsigned slot, enum ibv_wr_opcode opcode,
	     uint32_t length);
void do_recv(struct scene *scene, unsigned slot, uint32_t length);
/* Say what the verb returned, if it refused. */
void must_send(struct scene *scene, unsigned slot, struct send *send);
void must_recv(struct scene *scene, unsigned slot, struct recv *recv);

/* Waits until that many completions came, or for some seconds. */
unsigned wait_wcs(struct scene *scene, unsigned slot, struct ibv_wc *wcs,
		  unsigned count);
/* After what must come, whatever else comes until all is quiet. */
unsigned gather_wcs(struct scene *scene, unsigned slot, struct ibv_wc *wcs,
		    unsigned count);
/* The same, saying them: "A: 1 SEND ok, 2 WR_FLUSH_ERR". */
void say_wcs(struct scene *scene, unsigned slot, unsigned count);
void say_all_wcs(struct scene *scene, unsigned slot, unsigned count);

/* What is left after a failure: completions of both ends, at least @a and @b of
 * them, states and events. */
void say_aftermath(struct scene *scene, unsigned a, unsigned b);

/* Waits until a byte of the scene's memory is that, or for some seconds. */
bool wait_byte(struct scene *scene, size_t at, unsigned char value);
void nap(const struct scene *scene, unsigned ms);

/*
 * Words (kit_say.c)
 */

/* Adds to what was observed; parts are separated by semicolons. */
void say(struct scene *scene, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds to the last part, after a space. */
void say_more(struct scene *scene, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* "0", "EINVAL"; with a minus sign if it is not verbs' way to say so. */
const char *verb_name(int ret);
/* The same for functions of the control table. */
const char *control_name(int ret);
const char *state_name(enum ibv_qp_state state);
const char *status_name(enum ibv_wc_status status);
const char *opcode_name(enum ibv_wc_opcode opcode);
const char *event_name(enum ibv_event_type type);

void say_list(struct scene *scene, const char *label, const struct ibv_wc *wcs,
	      unsigned count);
void say_states(struct scene *scene);
/* Device events, "SRQ_LIMIT_REACHED on the SRQ"; waits until all is quiet. */
void say_events(struct scene *scene);
/* Are the bytes there now those of NEAR? Are they still CANARY? */
void say_data(struct scene *scene, const char *what, size_t at, size_t length);

/* Forgets what happened to the device before. */
void drain_events(struct scene *scene);

/*
 * Completion channels (kit_say.c)
 */

/* Waits for an event; acknowledges it. Which CQ, or -1. */
int take_event(struct scene *scene, unsigned channel, bool must_come);
/* "event for A", "no event". */
void say_cq_event(struct scene *scene, unsigned channel, bool must_come);

#endif
