/* SPDX-License-Identifier: MIT */
#include "threads/cpus.h"

#include <stdio.h>
#include <stdlib.h>

static cpu_set_t given;
static int order[CPU_SETSIZE]; /* one CPU of each core, then the others */
static unsigned count, cores;

/* The first CPU that runs on the same core; itself, where the kernel does not tell. */
static int core_of(int cpu)
{
	char path[96];
	int first = cpu;
	FILE *file;

	snprintf(path, sizeof(path),
		 "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
	file = fopen(path, "r");
	if (!file)
		return cpu;
	if (fscanf(file, "%d", &first) != 1)
		first = cpu;
	fclose(file);
	return first;
}

void cpus_find(void)
{
	bool taken[CPU_SETSIZE] = { false };
	int siblings[CPU_SETSIZE];
	unsigned sibling_count = 0;

	if (sched_getaffinity(0, sizeof(given), &given)) {
		perror("threads: sched_getaffinity");
		exit(1);
	}
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int core;

		if (!CPU_ISSET(cpu, &given))
			continue;
		core = core_of(cpu);
		if (core >= 0 && core < CPU_SETSIZE && !taken[core]) {
			taken[core] = true;
			order[cores++] = cpu;
		} else {
			siblings[sibling_count++] = cpu;
		}
	}
	count = cores;
	for (unsigned i = 0; i < sibling_count; i++)
		order[count++] = siblings[i];
}

unsigned cpus_count(void)
{
	return count;
}

unsigned cpus_cores(void)
{
	return cores;
}

void cpus_pin(unsigned number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(order[number], &set);
	sched_setaffinity(0, sizeof(set), &set);
}

void cpus_unpin(void)
{
	sched_setaffinity(0, sizeof(given), &given);
}

void cpus_leave(unsigned threads)
{
	cpu_set_t set = given;

	for (unsigned i = 0; i < threads && i < count; i++)
		CPU_CLR(order[i], &set);
	sched_setaffinity(0, sizeof(set), CPU_COUNT(&set) ? &set : &given);
}
