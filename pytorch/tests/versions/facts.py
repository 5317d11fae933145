# SPDX-License-Identifier: Apache-2.0
# Copyright the Tidemark authors
"""What PyTorch's allocator interfaces contain in the versions that the shim is driven in, as far as it needs them.

make_models.py writes a small model of PyTorch's headers from these tables, one for each version. The order of methods
is that of their slots in the vtable. test_wheels.py has the headers of all versions. 2.16 stands for one to come: 2.15
with a method that the shim does not know, and with an option of pools.
"""

VERSIONS = ["2.8", "2.11", "2.16"]

# What the base class does: PURE must be implemented, REFUSE raises an error, EMPTY returns a value-initialised result;
# anything else is the body itself.
PURE, REFUSE, EMPTY = "pure", "refuse", "empty"

# Class, method, first version, last version ("": still there), what the base class does.
METHODS = [
    ("Allocator", "DataPtr allocate(size_t bytes)", "2.8", "", PURE),
    ("Allocator", "bool is_simple_data_ptr(const DataPtr& data) const", "2.8", "", EMPTY),
    ("Allocator", "DeleterFnPtr raw_deleter() const", "2.8", "", EMPTY),
    ("Allocator", "void copy_data(void* to, const void* from, std::size_t bytes) const", "2.8", "", PURE),

    ("DeviceAllocator", "bool initialized()", "2.11", "", PURE),
    ("DeviceAllocator", "void emptyCache(MempoolId_t pool)", "2.11", "", PURE),
    ("DeviceAllocator", "void recordStream(const DataPtr& data, Stream stream)", "2.11", "", PURE),
    ("DeviceAllocator", "CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device)", "2.11", "", PURE),
    ("DeviceAllocator", "void resetAccumulatedStats(DeviceIndex device)", "2.11", "", PURE),
    ("DeviceAllocator", "void resetPeakStats(DeviceIndex device)", "2.11", "", PURE),
    ("DeviceAllocator", "std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device)", "2.11", "", REFUSE),

    ("CUDAAllocator", "void* raw_alloc(size_t bytes)", "2.8", "", PURE),
    ("CUDAAllocator", "void* raw_alloc_with_stream(size_t bytes, cudaStream_t stream)", "2.8", "", PURE),
    ("CUDAAllocator", "void raw_delete(void* address)", "2.8", "", PURE),
    ("CUDAAllocator", "void init(int device_count)", "2.8", "", PURE),
    ("CUDAAllocator", "bool initialized()", "2.8", "2.8", PURE),
    ("CUDAAllocator", "double getMemoryFraction(DeviceIndex device)", "2.8", "", PURE),
    ("CUDAAllocator", "void setMemoryFraction(double fraction, DeviceIndex device)", "2.8", "", PURE),
    ("CUDAAllocator", "std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device)", "2.11", "", PURE),
    ("CUDAAllocator", "void emptyCache(MempoolId_t pool)", "2.8", "2.8", PURE),
    ("CUDAAllocator", "void enable(bool is_on)", "2.8", "", PURE),
    ("CUDAAllocator", "bool isEnabled() const", "2.8", "", PURE),
    ("CUDAAllocator", "void cacheInfo(DeviceIndex device, size_t* largest)", "2.8", "", PURE),
    ("CUDAAllocator", "void* getBaseAllocation(void* address, size_t* bytes)", "2.8", "", PURE),
    ("CUDAAllocator", "void recordStream(const DataPtr& data, CUDAStream stream)", "2.8", "", PURE),
    ("CUDAAllocator", "void recordStream(const DataPtr& data, Stream stream)", "2.11", "",
     "{ recordStream(data, CUDAStream(stream)); }"),
    ("CUDAAllocator", "CachingDeviceAllocator::DeviceStats getDeviceStats(DeviceIndex device)", "2.8", "2.8", PURE),
    ("CUDAAllocator", "void resetAccumulatedStats(DeviceIndex device)", "2.8", "2.8", PURE),
    ("CUDAAllocator", "void resetPeakStats(DeviceIndex device)", "2.8", "2.8", PURE),
    ("CUDAAllocator", "SnapshotInfo snapshot(MempoolId_t pool)", "2.8", "2.8", PURE),
    ("CUDAAllocator", "SnapshotInfo snapshot(MempoolId_t pool, bool has_traces)", "2.11", "", PURE),
    ("CUDAAllocator", "void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,"
                      " std::function<bool(cudaStream_t)> filter)", "2.8", "", PURE),
    ("CUDAAllocator", "void endAllocateToPool(DeviceIndex device, MempoolId_t pool)", "2.8", "", PURE),
    ("CUDAAllocator", "void markCaptureBegin(DeviceIndex device)", "2.16", "", EMPTY),
    ("CUDAAllocator", "void markCaptureEnd(DeviceIndex device)", "2.16", "", EMPTY),
    ("CUDAAllocator", "void releasePool(DeviceIndex device, MempoolId_t pool)", "2.8", "", PURE),
    ("CUDAAllocator", "int getPoolUseCount(DeviceIndex device, MempoolId_t pool)", "2.8", "", REFUSE),
    ("CUDAAllocator", "void createOrIncrefPool(DeviceIndex device, MempoolId_t pool, CUDAAllocator* allocator)",
     "2.8", "2.8", REFUSE),
    ("CUDAAllocator", "void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,"
                      " std::shared_ptr<CUDAAllocator> allocator)", "2.11", "2.11", REFUSE),
    ("CUDAAllocator", "void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,"
                      " std::shared_ptr<CUDAAllocator> allocator, bool option)", "2.16", "", REFUSE),
    ("CUDAAllocator", "void setUseOnOOM(DeviceIndex device, MempoolId_t pool)", "2.8", "2.8", REFUSE),
    ("CUDAAllocator", "void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool is_on)", "2.11", "", REFUSE),
    ("CUDAAllocator", "void setNoSplit(DeviceIndex device, MempoolId_t pool)", "2.11", "", REFUSE),
    ("CUDAAllocator", "bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,"
                      " const std::unordered_set<void*>& expected)", "2.8", "", REFUSE),
    ("CUDAAllocator", "ShareableHandle shareIpcHandle(void* address)", "2.8", "", PURE),
    ("CUDAAllocator", "std::shared_ptr<void> getIpcDevPtr(std::string handle)", "2.8", "", PURE),
    ("CUDAAllocator", "bool isHistoryEnabled()", "2.8", "", REFUSE),
    ("CUDAAllocator", "std::shared_ptr<GatheredContext> getContextForPointer(const void* address)", "2.16", "", EMPTY),
    ("CUDAAllocator", "void recordHistory(bool is_on, CreateContextFn recorder, size_t entries, RecordContext when,"
                      " bool clears)", "2.8", "2.8", PURE),
    ("CUDAAllocator", "void recordHistory(bool is_on, CreateContextFn recorder, size_t entries, RecordContext when,"
                      " bool clears, const std::vector<std::string>& skipped)", "2.11", "", PURE),
    ("CUDAAllocator", "void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& pairs)",
     "2.8", "", EMPTY),
    ("CUDAAllocator", "void pushCompileContext(std::string& text)", "2.8", "", EMPTY),
    ("CUDAAllocator", "void popCompileContext()", "2.8", "", EMPTY),
    ("CUDAAllocator", "bool supportsUserMetadata()", "2.16", "", EMPTY),
    ("CUDAAllocator", "void setUserMetadata(const std::string& text)", "2.11", "", EMPTY),
    ("CUDAAllocator", "std::string getUserMetadata()", "2.11", "", EMPTY),
    ("CUDAAllocator", "void annotateMemory(const void* address, const std::string& text)", "2.16", "", EMPTY),
    ("CUDAAllocator", "void attachOutOfMemoryObserver(OutOfMemoryObserver observer)", "2.8", "", PURE),
    ("CUDAAllocator", "void attachOomRejectionObserver(OomRejectionObserver observer)", "2.16", "", PURE),
    ("CUDAAllocator", "void attachAllocatorTraceTracker(AllocatorTraceTracker tracker)", "2.8", "", PURE),
    ("CUDAAllocator", "void enablePeerAccess(DeviceIndex device, DeviceIndex peer)", "2.8", "", PURE),
    ("CUDAAllocator", "cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,"
                      " cudaStream_t stream, bool is_peer)", "2.8", "", PURE),
    ("CUDAAllocator", "std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t pool)",
     "2.8", "", PURE),
    ("CUDAAllocator", "CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state)",
     "2.8", "", PURE),
    ("CUDAAllocator", "DataPtr allocateWithAddress(size_t bytes, void* address)", "2.16", "", REFUSE),
    ("CUDAAllocator", "void newFangled(int number)", "2.16", "", EMPTY),
    ("CUDAAllocator", "std::string name()", "2.8", "", PURE),
    ("CUDAAllocator", "std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device)", "2.11", "", EMPTY),  # cudaMemGetInfo

    ("HostAllocator", "bool record_event(void* address, void* context, c10::Stream stream)", "2.8", "", PURE),
    ("HostAllocator", "void empty_cache()", "2.8", "", PURE),
    ("HostAllocator", "HostStats get_stats()", "2.8", "", PURE),
    ("HostAllocator", "void reset_accumulated_stats()", "2.8", "", PURE),
    ("HostAllocator", "void reset_peak_stats()", "2.8", "", PURE),
    ("HostAllocator", "void begin_allocate_to_pool(c10::MempoolId_t pool, std::function<bool(c10::Stream)> filter)",
     "2.11", "", REFUSE),
    ("HostAllocator", "void end_allocate_to_pool(c10::MempoolId_t pool)", "2.11", "", REFUSE),
    ("HostAllocator", "void release_pool(c10::MempoolId_t pool)", "2.11", "", REFUSE),
]

# Struct, member, first version, last version.
FIELDS = [
    ("BlockInfo", "size_t size = 0;", "2.8", ""),
    ("BlockInfo", "size_t requested_size = 0;", "2.8", ""),
    ("BlockInfo", "int32_t gc_counter = 0;", "2.8", ""),
    ("BlockInfo", "bool allocated = false;", "2.8", ""),
    ("BlockInfo", "bool active = false;", "2.8", ""),
    ("BlockInfo", "std::shared_ptr<GatheredContext> context_when_allocated;", "2.8", ""),

    ("SegmentInfo", "DeviceIndex device = 0;", "2.8", ""),
    ("SegmentInfo", "int32_t registration_counter = -1;", "2.11", ""),
    ("SegmentInfo", "size_t address = 0;", "2.8", ""),
    ("SegmentInfo", "size_t total_size = 0;", "2.8", ""),
    ("SegmentInfo", "size_t requested_size = 0;", "2.8", ""),
    ("SegmentInfo", "size_t allocated_size = 0;", "2.8", ""),
    ("SegmentInfo", "size_t active_size = 0;", "2.8", ""),
    ("SegmentInfo", "cudaStream_t stream = nullptr;", "2.8", "2.8"),
    ("SegmentInfo", "void* stream = nullptr;", "2.11", ""),
    ("SegmentInfo", "bool is_large = false;", "2.8", ""),
    ("SegmentInfo", "bool is_expandable = false;", "2.8", ""),
    ("SegmentInfo", "MempoolId_t owner_private_pool_id = { 0, 0 };", "2.8", ""),
    ("SegmentInfo", "std::vector<BlockInfo> blocks;", "2.8", ""),
    ("SegmentInfo", "std::shared_ptr<GatheredContext> context_when_allocated;", "2.8", ""),

    ("TraceEntry", "enum Action { ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP,"
                   " SEGMENT_UNMAP, SNAPSHOT, OOM };", "2.8", "2.11"),
    ("TraceEntry", "enum Action { ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP,"
                   " SEGMENT_UNMAP, SNAPSHOT, OOM, ANNOTATE };", "2.16", ""),
    ("TraceEntry", "TraceEntry(Action action, DeviceIndex device, size_t address, size_t bytes, cudaStream_t stream,"
                   " MempoolId_t pool, approx_time_t time, std::shared_ptr<GatheredContext> context = nullptr,"
                   " std::string compile_context = \"\")"
                   " : action_(action), device_(device), addr_(address), context_(std::move(context)),"
                   " stream_(stream), size_(bytes), mempool_(pool), compile_context_(std::move(compile_context))"
                   " { time_.approx_t_ = time; }", "2.8", "2.8"),
    ("TraceEntry", "TraceEntry(Action action, DeviceIndex device, size_t address, size_t bytes, void* stream,"
                   " MempoolId_t pool, approx_time_t time, std::shared_ptr<GatheredContext> context = nullptr,"
                   " std::string compile_context = \"\", std::string user_metadata = \"\")"
                   " : action_(action), device_(device), addr_(address), context_(std::move(context)),"
                   " stream_(stream), size_(bytes), mempool_(pool), compile_context_(std::move(compile_context)),"
                   " user_metadata_(std::move(user_metadata)) { time_.approx_t_ = time; }", "2.11", ""),
    ("TraceEntry", "Action action_;", "2.8", ""),
    ("TraceEntry", "DeviceIndex device_;", "2.8", ""),
    ("TraceEntry", "size_t addr_;", "2.8", ""),
    ("TraceEntry", "std::shared_ptr<GatheredContext> context_;", "2.8", ""),
    ("TraceEntry", "cudaStream_t stream_{};", "2.8", "2.8"),
    ("TraceEntry", "void* stream_{};", "2.11", ""),
    ("TraceEntry", "size_t size_;", "2.8", ""),
    ("TraceEntry", "MempoolId_t mempool_;", "2.8", ""),
    ("TraceEntry", "trace_time_ time_{};", "2.8", ""),
    ("TraceEntry", "std::string compile_context_;", "2.8", ""),
    ("TraceEntry", "std::string user_metadata_;", "2.11", ""),

    ("AnnotationEntry", "AnnotationEntry(DeviceIndex device, approx_time_t time) : device_(device)"
                        " { time_.approx_t_ = time; }", "2.8", ""),
    ("AnnotationEntry", "void recordUserMetadata(const std::string& name, std::string value)"
                        " { metadata_[name] = std::move(value); }", "2.8", ""),
    ("AnnotationEntry", "DeviceIndex device_;", "2.8", ""),
    ("AnnotationEntry", "trace_time_ time_{};", "2.8", ""),
    ("AnnotationEntry", "std::unordered_map<std::string, std::string> metadata_;", "2.8", ""),

    ("AllocatorConfigInfo", "double garbage_collection_threshold;", "2.8", ""),
    ("AllocatorConfigInfo", "size_t max_split_size;", "2.8", ""),
    ("AllocatorConfigInfo", "size_t max_round_threshold;", "2.16", ""),
    ("AllocatorConfigInfo", "size_t max_cached_size;", "2.16", ""),
    ("AllocatorConfigInfo", "size_t pinned_num_register_threads;", "2.8", ""),
    ("AllocatorConfigInfo", "bool expandable_segments;", "2.8", ""),
    ("AllocatorConfigInfo", "bool release_lock_on_malloc;", "2.8", ""),
    ("AllocatorConfigInfo", "bool pinned_use_host_register;", "2.8", ""),
    ("AllocatorConfigInfo", "bool graph_capture_record_stream_reuse;", "2.11", ""),
    ("AllocatorConfigInfo", "std::string last_allocator_settings;", "2.8", ""),
    ("AllocatorConfigInfo", "std::vector<size_t> roundup_power2_divisions;", "2.8", ""),

    ("DeviceStats", "StatArray allocation, segment, active, inactive_split;", "2.8", ""),
    ("DeviceStats", "StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;",
     "2.8", ""),
    ("DeviceStats", "std::unordered_map<MempoolId_t, StatArray, MempoolIdHash> reserved_bytes_by_private_pools;",
     "2.16", ""),
    ("DeviceStats", "int64_t num_alloc_retries = 0, num_ooms = 0;", "2.8", ""),
    ("DeviceStats", "CachingAllocator::Stat oversize_allocations, oversize_segments;", "2.8", ""),
    ("DeviceStats", "int64_t num_sync_all_streams = 0, num_device_alloc = 0, num_device_free = 0;", "2.8", ""),
    ("DeviceStats", "int64_t num_oom_rejections = 0;", "2.16", ""),
    ("DeviceStats", "int64_t max_split_size = 0;", "2.8", ""),

    ("HostStats", "c10::CachingAllocator::Stat allocation, segment, reserved_bytes;", "2.8", "2.8"),
    ("HostStats", "c10::CachingAllocator::Stat active_requests, active_bytes, allocations;", "2.11", ""),
    ("HostStats", "c10::CachingAllocator::Stat allocated_bytes;", "2.8", ""),
    ("HostStats", "DurationStat host_alloc_time, host_free_time;", "2.8", ""),
    ("HostStats", "int64_t num_host_alloc = 0, num_host_free = 0;", "2.8", ""),
    ("HostStats", "std::vector<int64_t> bucket_allocation;", "2.11", ""),
]

# 2.11 has a base class DeviceAllocator, c10::MempoolId_t, and structs of snapshots in c10::CachingDeviceAllocator; 2.8 has
# none of them.
MOVED = "2.11"
OOM_REJECTION = "2.16"  # OomRejectionObserver
NATIVE_PRIORITY = {"2.16": 1}  # of PyTorch's own allocator in the table of allocators; 0 otherwise
