"""The consumer group protocol of KIP-848: the coordinator assigns, members follow at their own pace."""
