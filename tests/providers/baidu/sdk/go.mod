module example.com/sdk

go 1.24

require github.com/baidubce/bce-sdk-go v0.9.200
