/* SPDX-License-Identifier: MIT */
#ifndef NET_KIT_H
#define NET_KIT_H

#include <stddef.h>
#include <stdint.h>

#include "nccl/net.h"

/*
 * The plugin as NCCL has it: loaded with dlopen(), and called through the table of one
 * version. The calls are those of v11, whatever the version is. A process calls net_load()
 * once, after it was forked.
 */

/* Versions from 8 to 12; SNT_NCCL_PLUGIN has the path, else
 * the dynamic linker finds it. Exits on failure. */
void net_load(int version);
/* Devices, or what init failed with, negated. */
int net_init(void);
void net_finalize(void);

int net_devices(int *count);
int net_properties(int device, struct nccl_props_v12 *props);
int net_make_vdevice(int *device, struct nccl_vdevice *parts);
int net_listen(int device, void *handle, void **listener);
int net_connect(int device, void *handle, void **comm);
int net_accept(void *listener, void **comm);
int net_reg(void *comm, void *data, size_t size, void **memory);
int net_dereg(void *comm, void *memory);
int net_isend(void *comm, void *data, size_t size, void *memory, void **request);
int net_irecv(void *comm, void *data, size_t size, void *memory, void **request);
int net_test(void *request, int *done, int *size);
int net_close_send(void *comm);
int net_close_recv(void *comm);
int net_close_listen(void *listener);

/* What the plugin has logged: how many lines of NCCL's WARN level, and the last of them. */
unsigned net_warnings(void);
const char *net_last_warning(void);
/* The last line of level INFO that contains @phrase, or NULL. Forgets what it returned with
 * the next call. */
const char *net_info_with(const char *phrase);

/* Both ends of a connection in this process. */
struct net_pair {
	void *sender, *receiver;
};
struct net_pair net_connect_pair(void);

#endif
