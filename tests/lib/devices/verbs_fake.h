/* SPDX-License-Identifier: MIT */
#ifndef VERBS_FAKE_H
#define VERBS_FAKE_H

#include <infiniband/verbs.h>

/*
 * A libibverbs that a test makes up: linked into a test program, its functions
 * take the place of the real ones, so that src/dev/verbs/ runs unchanged on any
 * set of devices, ports and GIDs. It moves no data; that is for the scripted
 * device. Every call can fail (tests/lib/fault.h), in the way in which the real
 * call does.
 */

#define FAKE_DEVICES_MAX 40
#define FAKE_PORTS_MAX	 4
#define FAKE_GIDS_MAX	 8

struct fake_port {
	enum ibv_port_state state;
	uint8_t link_layer;
	unsigned gid_count;
	struct ibv_gid_entry gid[FAKE_GIDS_MAX]; /* gid_type -1: an empty slot */
};

struct fake_device {
	struct ibv_device device; /* first: the fake casts between the two */
	unsigned port_count;
	struct fake_port port[FAKE_PORTS_MAX];
	int has_dmabuf;
};

/* Forgets all devices, also that the kernel has RDMA support at all. */
void fake_reset(void);

/* No RDMA in the kernel: listing fails with ENOSYS, as the real one does. */
void fake_no_support(void);

/* Adds a device; each port active, on Ethernet, with one RoCE v2 IPv4 GID. */
struct fake_device *fake_add(const char *name, unsigned port_count);

void fake_set_gid(struct fake_port *port, unsigned index, unsigned type,
		  const char *address);

/* Objects and open devices that exist; 0 after everything was undone. */
unsigned fake_live(void);

/* Opens that happened since fake_reset(). */
unsigned fake_opens(void);

/* The errno with which calls fail when a fault hits them. */
#define FAKE_ERRNO EMFILE

#endif
