/* SPDX-License-Identifier: MIT */
#ifndef CM_SIM_H
#define CM_SIM_H

#include "dev/cm.h"
#include "lib/sim/device.h"
#include "lib/search.h"

/*
 * Connections between soft devices on a simulated fabric: programs connect, accept,
 * refuse, think, lose patience and crash; messages of QP 1 get lost, come twice, late
 * or damaged. What each program knows is compared with what the others did.
 */

#define HOSTS_MAX   4
#define DEVICES_MAX 2 /* of a host */
#define ENDS_MAX    128
#define PORT	    7000
#define MESSAGE	    64 /* bytes */

#define US UINT64_C(1000)
#define MS UINT64_C(1000000)
#define S  UINT64_C(1000000000)

enum fault {
	LOSS,
	DUPLICATE,
	CORRUPT,
	REORDER,
	JITTER,
	CUT,	 /* and restored */
	KILL,	 /* of a host, for good */
	RESTART, /* the same, and it comes back, with the same addresses and QP numbers */
	SLOW,	 /* programs think for seconds */
	REFUSE,	 /* programs reject */
	ABANDON, /* ids are destroyed in any state */
	LIMIT,	 /* few connections, short backlogs */
	FAULTS
};

/* Its identity, in private data; the rest of which follows from it. */
struct token {
	uint32_t end;
	uint32_t peer; /* the one it answers; of a request: none */
};

#define NOBODY UINT32_MAX

/* What a program knows of a connection. */
enum stage {
	UNUSED,
	RESOLVING,
	CONNECTING,
	RESPONDED,
	REQUESTED,
	ACCEPTED,
	ESTABLISHED,
	CLOSING,
	OVER,	   /* by a final event, or by having refused */
	DESTROYED, /* what was is remembered */
};

struct end {
	enum stage stage;
	unsigned index;
	struct host *host;
	unsigned life; /* of the host */
	struct snt__cm_id *id;
	struct ibv_qp *qp;
	bool passive;
	uint32_t peer;	/* an index; NOBODY: not known */
	uint64_t due;	/* when the program does something */
	uint64_t since; /* of what it waits for: an answer */
	/* What it did, ever. */
	bool accepted, established, told_established, rejected, left, failed, crashed;
	bool turned_away; /* by a device, before any program knew of it */
	unsigned finals;
	bool got; /* the peer's message, over QPs */
	bool sent;
};

struct device {
	struct snt__sim_device *sim;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t memory[ENDS_MAX][MESSAGE];
};

struct host {
	unsigned index;
	unsigned life;
	bool dead;
	bool listens;
	struct snt__sim_host *sim;
	struct device device[DEVICES_MAX];
	unsigned devices;
	struct snt__cm *cm;
	struct snt__cm_id *listener;
	uint32_t qpn;	   /* the last that was given to a QP that is none */
	uint64_t given_up; /* by managers of former lives */
};

struct world {
	const struct search_plan *plan;
	struct snt__sim *sim;
	uint64_t random;
	uint32_t faults;
	bool ipv6;
	bool real_qps;
	bool disturbed; /* by something that may last longer than patience */
	bool settling;
	struct host host[HOSTS_MAX];
	unsigned hosts;
	struct end end[ENDS_MAX];
	unsigned ends;
};

extern struct world world;

/* One throw a statement: compilers differ in what they evaluate first. */
static inline uint32_t dice(uint32_t bound)
{
	return random_below(&world.random, bound);
}

static inline bool chance(uint32_t percent)
{
	return dice(100) < percent;
}

static inline bool has(enum fault fault)
{
	return world.faults >> fault & 1;
}

int wrong(const struct end *end, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* cm_sim_world.c: 0, or -1 after having said what is wrong */
int open_world(const struct search_plan *plan);
int close_world(void);
int start_host(struct host *host);
/* All that a program has is gone at once, as if it had never been. */
int crash_host(struct host *host);
int check_managers(void);
uint64_t given_up(const struct host *host);
/* Has a manager forgotten something that lingered, for want of room? */
bool has_evicted(const struct host *host);
/* No more faults from here on. */
void heal(void);
/* The longest that anybody waits for an answer. */
uint64_t patience_ns(void);

/* cm_sim_program.c */
int start_connect(void);
int serve_all(void);
int act_when_due(void);
uint64_t next_due(void);
void destroy_end(struct end *end);

#endif
